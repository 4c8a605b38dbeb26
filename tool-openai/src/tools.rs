//! The tools of a request: what can be told of them before they are sent, and how they are written.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;
use tool_core::{ChatRequest, ToolChoice, ToolDefinition, ToolDefinitions};

use crate::{Endpoint, Error};

/// How long a name may be, in characters: <https://platform.openai.com/docs/api-reference/chat/create>.
const LONGEST_NAME: usize = 64;

/// What no schema of a tool may have at its top.
const NOT_AT_TOP: [&str; 5] = ["anyOf", "oneOf", "allOf", "enum", "not"];

/// Something that was done to a request so that the endpoint takes it: see [`on_warning`](crate::OpenAiBuilder::on_warning).
#[derive(Debug)]
#[non_exhaustive]
pub enum Warning<'a> {
    /// The description of a tool was longer than the endpoint's [most](Endpoint::max_description), and was cut.
    #[non_exhaustive]
    DescriptionCut {
        /// The name of the tool.
        tool: &'a str,
        /// How many characters were left out.
        left_out: usize,
    },
    /// The request asks for something that the endpoint has no word for, so it is not said.
    #[non_exhaustive]
    LeftOut {
        /// The field of the request, such as `parallel_tool_calls`.
        field: &'static str,
    },
}

impl fmt::Display for Warning<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DescriptionCut { tool, left_out } => {
                write!(f, "the description of the tool `{tool}` was cut: {left_out} characters were left out")
            }
            Self::LeftOut { field } => write!(f, "the endpoint does not know `{field}`: it was left out"),
        }
    }
}

/// A function that is told of warnings.
pub(crate) type WarningHook = Arc<dyn Fn(&Warning<'_>) + Send + Sync>;

/// How the tools of an API are written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Form {
    /// `{"type": "function", "function": {"name": …}}`, of Chat Completions.
    Nested,
    /// `{"type": "function", "name": …}`, of the Responses API.
    Flat,
}

/// What an endpoint has to say of tools.
#[derive(Clone, Debug, PartialEq)]
struct Rules {
    form: Form,
    strict: bool,
    names_begin_with_letter: bool,
    plain_parameters: bool,
    max_tools: Option<usize>,
    max_description: Option<usize>,
}

/// The tools of a set as they stand in every request of it, for each of the rules that they were asked for by: an
/// application may ask several endpoints.
#[derive(Default)]
struct Written(Mutex<Vec<(Rules, Outcome)>>);

impl Written {
    fn find(&self, rules: &Rules) -> Option<Outcome> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|(earlier, _)| earlier == rules).map(|(_, written)| Arc::clone(written))
    }

    fn keep(&self, rules: Rules, written: &Outcome) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.iter().any(|(earlier, _)| *earlier == rules) {
            all.push((rules, Arc::clone(written)));
        }
    }
}

/// The list, or why it cannot be sent.
type Outcome = Arc<Result<String, String>>;

/// Tells of what a request wants and the endpoint has no word for.
pub(crate) fn warn_of_left_out(
    request: &ChatRequest<'_>,
    endpoint: &Endpoint,
    on_warning: Option<&WarningHook>,
) {
    let (Some(on_warning), false) = (on_warning, request.tools().is_empty()) else { return };
    let is_forced = matches!(request.tool_choice(), ToolChoice::Required | ToolChoice::Tool(_));
    let is_named = matches!(request.tool_choice(), ToolChoice::Tool(_)) && endpoint.named_tool_choice;
    let left_out = [
        ("tool_choice", is_forced && !is_named && endpoint.required_tool_choice.is_none()),
        ("parallel_tool_calls", request.parallel_tool_calls().is_some() && !endpoint.parallel_tool_calls),
        ("strict", !endpoint.strict && request.tools().iter().any(ToolDefinition::is_strict)),
    ];
    for (field, _) in left_out.into_iter().filter(|(_, is_left_out)| *is_left_out) {
        on_warning(&Warning::LeftOut { field });
    }
}

/// The tools that are offered: all, unless one is chosen by its name and the endpoint has no word for that.
pub(crate) fn offered<'a>(request: &'a ChatRequest<'_>, endpoint: &Endpoint) -> Cow<'a, ToolDefinitions> {
    match request.tool_choice() {
        ToolChoice::Tool(name) if !endpoint.named_tool_choice => {
            let chosen = request.tools().iter().filter(|tool| tool.name() == name).cloned();
            Cow::Owned(chosen.collect())
        }
        _ => Cow::Borrowed(request.tools()),
    }
}

/// The tools as a JSON list, or nothing if there are none. They are checked and written once per set.
pub(crate) fn written(
    definitions: &ToolDefinitions,
    form: Form,
    endpoint: &Endpoint,
    on_warning: Option<&WarningHook>,
) -> Result<Option<impl AsRef<str> + use<>>, Error> {
    if definitions.is_empty() {
        return Ok(None);
    }
    let rules = Rules {
        form,
        strict: endpoint.strict,
        names_begin_with_letter: endpoint.names_begin_with_letter,
        plain_parameters: endpoint.plain_parameters,
        max_tools: endpoint.max_tools,
        max_description: endpoint.max_description,
    };
    let all = definitions.encoded(|_| Written::default());
    let written = match all.find(&rules) {
        Some(written) => written,
        None => {
            // Without the lock, as whoever is warned may ask by the same tools.
            let written = Arc::new(rules.write(definitions, on_warning));
            all.keep(rules, &written);
            written
        }
    };
    if let Err(why) = &*written {
        return Err(Error::request(why));
    }
    Ok(Some(List(written)))
}

struct List(Outcome);

impl AsRef<str> for List {
    fn as_ref(&self) -> &str {
        self.0.as_ref().as_ref().map_or("[]", |list| list)
    }
}

impl Rules {
    fn write(
        &self,
        definitions: &[ToolDefinition],
        on_warning: Option<&WarningHook>,
    ) -> Result<String, String> {
        let mut wrong = Vec::new();
        if let Some(most) = self.max_tools.filter(|most| definitions.len() > *most) {
            let came = definitions.len();
            wrong.push(format!("the endpoint takes at most {most} tools, and the request has {came}"));
        }
        wrong.extend(definitions.iter().filter_map(|definition| self.refusal(definition)));
        if !wrong.is_empty() {
            return Err(wrong.join("; "));
        }
        let tools = definitions.iter().map(|definition| {
            let (description, left_out) = self.cut(definition.description());
            if let (Some(on_warning), 1..) = (on_warning, left_out) {
                on_warning(&Warning::DescriptionCut { tool: definition.name(), left_out });
            }
            Tool { definition, description, rules: self }
        });
        serde_json::to_string(&tools.collect::<Vec<_>>())
            .map_err(|error| format!("the tools cannot be written as JSON: {error}"))
    }

    /// What the endpoint would refuse of a tool, and with it the whole request.
    fn refusal(&self, definition: &ToolDefinition) -> Option<String> {
        let name = definition.name();
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(is_part) {
            let shown: String = name.chars().take(LONGEST_NAME).collect();
            return Some(format!(
                "`{shown}` is no name of a tool: it takes 1 to {LONGEST_NAME} letters, digits, `_` and `-`"
            ));
        }
        if self.names_begin_with_letter && !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            return Some(format!(
                "the name of the tool `{name}` must begin with a letter or `_` for this endpoint"
            ));
        }
        let parameters = definition.parameters();
        if parameters.get("type").and_then(Value::as_str) != Some("object") {
            return Some(format!("the parameters of the tool `{name}` must be an object at the top"));
        }
        let word = NOT_AT_TOP.iter().find(|word| parameters.get(**word).is_some());
        word.filter(|_| self.plain_parameters).map(|word| {
            format!("the parameters of the tool `{name}` have `{word}` at the top, which the endpoint refuses; move it into a property")
        })
    }

    /// A description of the length that is taken, and how many characters are left out.
    fn cut<'a>(&self, description: Option<&'a str>) -> (Option<Cow<'a, str>>, usize) {
        let (Some(text), Some(most)) = (description, self.max_description) else {
            return (description.map(Cow::Borrowed), 0);
        };
        let length = text.chars().count();
        if length <= most {
            return (Some(Cow::Borrowed(text)), 0);
        }
        let kept = most.saturating_sub(1);
        let cut: String = text.chars().take(kept).chain(['…']).collect();
        ((most > 0).then_some(Cow::Owned(cut)), length - kept)
    }
}

struct Tool<'a> {
    definition: &'a ToolDefinition,
    description: Option<Cow<'a, str>>,
    rules: &'a Rules,
}

impl Tool<'_> {
    fn write<S: SerializeMap>(&self, function: &mut S) -> Result<(), S::Error> {
        function.serialize_entry("name", self.definition.name())?;
        if let Some(description) = &self.description {
            function.serialize_entry("description", description)?;
        }
        function.serialize_entry("parameters", self.definition.parameters())?;
        // Left out, it means `true` to one API, which wants it of every tool, and `false` to the other.
        if self.rules.strict || self.rules.form == Form::Flat {
            function.serialize_entry("strict", &(self.rules.strict && self.definition.is_strict()))?;
        }
        Ok(())
    }
}

impl Serialize for Tool<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Function<'a>(&'a Tool<'a>);

        impl Serialize for Function<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut function = serializer.serialize_map(None)?;
                self.0.write(&mut function)?;
                function.end()
            }
        }

        let mut tool = serializer.serialize_map(None)?;
        tool.serialize_entry("type", "function")?;
        match self.rules.form {
            Form::Nested => tool.serialize_entry("function", &Function(self))?,
            Form::Flat => self.write(&mut tool)?,
        }
        tool.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(definitions: impl IntoIterator<Item = ToolDefinition>) -> ToolDefinitions {
        definitions.into_iter().collect()
    }

    fn sent(definitions: &ToolDefinitions, form: Form, endpoint: &Endpoint) -> Result<Value, String> {
        match written(definitions, form, endpoint, None) {
            Ok(list) => Ok(serde_json::from_str(list.unwrap().as_ref()).unwrap()),
            Err(error) => {
                assert!(error.is_invalid_request());
                Err(error.to_string())
            }
        }
    }

    #[test]
    fn both_forms_say_whether_a_tool_is_strict() {
        let strict = ToolDefinition::new("now").with_description("Tells the time").into_strict().unwrap();
        let tools = set([strict.clone(), ToolDefinition::new("then")]);
        let closed = strict.parameters();
        let now =
            json!({ "name": "now", "description": "Tells the time", "parameters": closed, "strict": true });
        let then = json!({ "name": "then", "parameters": closed, "strict": false });
        let nested =
            json!([{ "type": "function", "function": now }, { "type": "function", "function": then }]);
        assert_eq!(sent(&tools, Form::Nested, &Endpoint::openai()).unwrap(), nested);
        let flat = sent(&tools, Form::Flat, &Endpoint::openai()).unwrap();
        let of = |name: &str, mut tool: Value| {
            tool["type"] = "function".into();
            assert_eq!(tool["name"], name);
            tool
        };
        assert_eq!(flat, json!([of("now", now), of("then", then)]));
        let without = sent(&tools, Form::Nested, &Endpoint::gemini()).unwrap();
        assert_eq!(without[0]["function"].get("strict"), None);
        let without = sent(&tools, Form::Flat, &Endpoint::gemini()).unwrap();
        assert_eq!(without[0]["strict"], false);
    }

    #[test]
    fn what_the_endpoint_would_refuse_is_not_sent() {
        let with = |parameters: Value| ToolDefinition::new("now").with_parameters(parameters);
        let many = (0..129).map(|number| ToolDefinition::new(format!("now_{number}")));
        let openai = Endpoint::openai();
        let table = [
            (set([ToolDefinition::new("")]), &openai, "`` is no name of a tool"),
            (
                set([ToolDefinition::new("a b"), ToolDefinition::new("é")]),
                &openai,
                "`a b` is no name of a tool: it takes 1 to 64 letters, digits, `_` and `-`; `é` is",
            ),
            (
                set([ToolDefinition::new("1st")]),
                &Endpoint::gemini(),
                "the name of the tool `1st` must begin with a letter",
            ),
            (set(many), &openai, "the endpoint takes at most 128 tools, and the request has 129"),
            (
                set([with(json!({ "type": "string" }))]),
                &openai,
                "the parameters of the tool `now` must be an object",
            ),
            (
                set([with(json!({ "type": "object", "oneOf": [] }))]),
                &openai,
                "the parameters of the tool `now` have `oneOf` at the top",
            ),
        ];
        for (tools, endpoint, expected) in table {
            let error = sent(&tools, Form::Nested, endpoint).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        let lenient = set([with(json!({ "type": "object", "oneOf": [] })), ToolDefinition::new("1st")]);
        assert!(sent(&lenient, Form::Nested, &Endpoint::vllm()).is_ok());
    }

    #[test]
    fn a_description_is_cut_where_that_is_set() {
        let tools = set([
            ToolDefinition::new("now").with_description("Tells the time"),
            ToolDefinition::new("then").with_description("ééé"),
        ]);
        let told = Arc::new(Mutex::new(Vec::new()));
        let hook: WarningHook = {
            let told = Arc::clone(&told);
            Arc::new(move |warning| told.lock().unwrap().push(warning.to_string()))
        };
        let mut endpoint = Endpoint::openai();
        for (most, expected, warnings) in [
            (None, json!("Tells the time"), 0),
            (Some(14), json!("Tells the time"), 0),
            (Some(6), json!("Tells…"), 1),
            (Some(0), Value::Null, 2),
        ] {
            endpoint.max_description = most;
            told.lock().unwrap().clear();
            // Twice, as it is told once per set.
            for _ in 0..2 {
                let list = written(&tools, Form::Flat, &endpoint, Some(&hook)).unwrap().unwrap();
                let list: Value = serde_json::from_str(list.as_ref()).unwrap();
                assert_eq!(list[0].get("description").unwrap_or(&Value::Null), &expected);
            }
            assert_eq!(told.lock().unwrap().len(), warnings, "{most:?}");
        }
        let expected = "the description of the tool `now` was cut: 14 characters were left out";
        assert_eq!(told.lock().unwrap()[0], expected);
    }

    #[test]
    fn tools_are_written_once_per_set_and_endpoint() {
        let tools = set([ToolDefinition::new("now")]);
        let at = |endpoint: &Endpoint| {
            let list = written(&tools, Form::Nested, endpoint, None).unwrap().unwrap();
            list.as_ref().as_ptr()
        };
        assert_eq!(at(&Endpoint::openai()), at(&Endpoint::openai()));
        assert_ne!(at(&Endpoint::openai()), at(&Endpoint::gemini()));
        assert_eq!(at(&Endpoint::openai()), at(&Endpoint::azure("mine")));
    }

    #[test]
    fn a_tool_that_cannot_be_chosen_by_name_is_offered_alone() {
        let tools = set([ToolDefinition::new("now"), ToolDefinition::new("then")]);
        let request = ChatRequest::new([]).with_tools(tools);
        let named = request.clone().with_tool_choice(ToolChoice::Tool("then".into()));
        let table = [
            (&request, Endpoint::lm_studio(), 2),
            (&named, Endpoint::lm_studio(), 1),
            (&named, Endpoint::openai(), 2),
        ];
        for (request, endpoint, expected) in table {
            let offered = offered(request, &endpoint);
            assert_eq!(offered.len(), expected, "{}", endpoint.name);
            assert_eq!(offered.last().unwrap().name(), "then");
        }
    }

    #[test]
    fn what_an_endpoint_has_no_word_for_is_told_of() {
        let strict = ToolDefinition::new("now").into_strict().unwrap();
        let request = ChatRequest::new([]).with_tools(set([strict]));
        let forced = request.clone().with_tool_choice(ToolChoice::Required).with_parallel_tool_calls(false);
        let named = request.clone().with_tool_choice(ToolChoice::Tool("now".into()));
        let table = [
            (&forced, Endpoint::openai(), vec![]),
            (&forced, Endpoint::ollama(), vec!["tool_choice", "parallel_tool_calls", "strict"]),
            (&named, Endpoint::ollama(), vec!["tool_choice", "strict"]),
            (&named, Endpoint::lm_studio(), vec!["strict"]),
            (&ChatRequest::new([]).with_tool_choice(ToolChoice::Required), Endpoint::ollama(), vec![]),
        ];
        for (request, endpoint, expected) in table {
            let told = Arc::new(Mutex::new(Vec::new()));
            let hook: WarningHook = {
                let told = Arc::clone(&told);
                Arc::new(move |warning| match warning {
                    Warning::LeftOut { field } => told.lock().unwrap().push(*field),
                    other => panic!("{other}"),
                })
            };
            warn_of_left_out(request, &endpoint, Some(&hook));
            assert_eq!(*told.lock().unwrap(), expected, "{}", endpoint.name);
        }
    }

    #[test]
    fn whoever_is_warned_may_ask_by_the_same_tools() {
        let tools = set([ToolDefinition::new("now").with_description("Tells the time")]);
        let mut endpoint = Endpoint::openai();
        endpoint.max_description = Some(5);
        let hook: WarningHook = {
            let (tools, endpoint) = (tools.clone(), endpoint.clone());
            Arc::new(move |_| drop(written(&tools, Form::Flat, &endpoint, None).unwrap()))
        };
        assert!(written(&tools, Form::Flat, &endpoint, Some(&hook)).is_ok());
    }
}
