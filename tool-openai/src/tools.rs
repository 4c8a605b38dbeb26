//! Checks and encodes the tools of a request.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use tool_core::model::{ChatRequest, ToolChoice, ToolDefinition};
use tool_core::provider::ToolDefinitions;
use tool_http::client::{EncodingCache, Error, find_tool_violation};

use crate::endpoint::Endpoint;
use crate::warning::{Warning, WarningHook};

/// The maximum length of a tool's name: <https://platform.openai.com/docs/api-reference/chat/create>.
pub(crate) const MAX_NAME_CHARS: usize = 64;

/// The keywords that [plain parameters](Endpoint::requires_plain_parameters) do not have at their top level.
const TOP_LEVEL_KEYWORDS: [&str; 5] = ["anyOf", "oneOf", "allOf", "enum", "not"];

/// The tool by which the provider's own search is requested.
const TOOL_SEARCH: &str = r#"{"type":"tool_search"}"#;

/// The form of an API's tools.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ToolFormat {
    /// `{"type": "function", "function": {"name": …}}`, for Chat Completions.
    Nested,
    /// `{"type": "function", "name": …}`, for the Responses API.
    Flat,
}

/// The rules of an API and an endpoint for tools.
#[derive(Clone, Debug, PartialEq)]
struct Rules {
    format: ToolFormat,
    /// The provider searches the deferred tools.
    is_searched: bool,
    endpoint: Arc<Endpoint>,
}

/// Returns a tool as the Chat Completions API writes it, for a request that this crate does not send. A definition in
/// [strict form](ToolDefinition::into_strict) is strict in the API.
///
/// ```
/// use serde_json::json;
/// use tool_core::{tool, tools};
///
/// /// Sums two numbers.
/// #[tool]
/// fn sum(a: f64, b: f64) -> f64 {
///     a + b
/// }
///
/// let definition = tools![sum].definitions()[0].clone().into_strict()?;
/// let expected = json!({
///     "type": "function",
///     "function": {
///         "name": "sum",
///         "description": "Sums two numbers.",
///         "parameters": {
///             "type": "object",
///             "properties": { "a": { "type": "number" }, "b": { "type": "number" } },
///             "required": ["a", "b"],
///             "additionalProperties": false,
///         },
///         "strict": true,
///     },
/// });
/// assert_eq!(tool_openai::chat_completions_tool(&definition)?, expected);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Returns an error if the API does not accept the tool, for example because of its name.
pub fn chat_completions_tool(definition: &ToolDefinition) -> Result<Value, Error> {
    tool_value(ToolFormat::Nested, definition)
}

/// Returns a tool as the Responses API writes it, like [`chat_completions_tool`].
///
/// # Errors
///
/// Returns an error if the API does not accept the tool, for example because of its name.
pub fn responses_tool(definition: &ToolDefinition) -> Result<Value, Error> {
    tool_value(ToolFormat::Flat, definition)
}

/// Returns the array of tools as the Chat Completions API writes it, of a [`&ToolSet`](tool_core::ToolSet) or
/// [`ToolDefinitions`]; see [`chat_completions_tool`].
///
/// ```
/// use tool_core::{tool, tools};
///
/// #[tool("Returns the time")]
/// fn now() -> String {
///     "noon".into()
/// }
///
/// let json = tool_openai::chat_completions_tools(&tools![now])?;
/// assert_eq!(json[0]["function"]["name"], "now");
/// # Ok::<_, tool_openai::Error>(())
/// ```
///
/// # Errors
///
/// Returns an error if the API does not accept the tools, for example because of a name or of their number.
pub fn chat_completions_tools(tools: impl Into<ToolDefinitions>) -> Result<Value, Error> {
    tool_values(ToolFormat::Nested, &tools.into())
}

/// Returns the array of tools as the Responses API writes it, like [`chat_completions_tools`].
///
/// # Errors
///
/// Returns an error if the API does not accept the tools, for example because of a name or of their number.
pub fn responses_tools(tools: impl Into<ToolDefinitions>) -> Result<Value, Error> {
    tool_values(ToolFormat::Flat, &tools.into())
}

fn tool_value(format: ToolFormat, definition: &ToolDefinition) -> Result<Value, Error> {
    Ok(tool_values(format, std::slice::from_ref(definition))?[0].take())
}

fn tool_values(format: ToolFormat, definitions: &[ToolDefinition]) -> Result<Value, Error> {
    let rules = Rules { format, is_searched: false, endpoint: Arc::new(Endpoint::openai()) };
    let json = rules.encode(definitions, None).map_err(Error::request)?;
    serde_json::from_str(&json).map_err(|error| Error::request(format!("could not read the tools: {error}")))
}

/// Returns the tools to offer: all of them, unless one is chosen by name and the endpoint does not support that.
pub(crate) fn offered<'a>(request: &'a ChatRequest<'_>, endpoint: &Endpoint) -> Cow<'a, ToolDefinitions> {
    match request.tool_choice() {
        ToolChoice::Tool(name) if !endpoint.supports_named_tool_choice => {
            let chosen = request.tools().iter().filter(|tool| tool.name() == name).cloned();
            Cow::Owned(chosen.collect())
        }
        _ => Cow::Borrowed(request.tools()),
    }
}

/// Returns `true` if the provider is to search the deferred tools of a request.
///
/// # Errors
///
/// Fails if it cannot, because the caller does not expect all of them to be offered.
pub(crate) fn is_searched(
    request: &ChatRequest<'_>,
    format: ToolFormat,
    endpoint: &Endpoint,
) -> Result<bool, Error> {
    let is_searched = request.has_tool_search() && request.tools().iter().any(ToolDefinition::is_deferred);
    match format {
        ToolFormat::Nested if is_searched => Err(Error::request(
            "the Chat Completions API has no search for tools; use `OpenAi::responses_model`, or `ToolSearch::bm25`",
        )),
        ToolFormat::Flat if is_searched && !endpoint.supports_tool_search => Err(Error::request(
            "the endpoint has no search for tools; set `Endpoint::supports_tool_search` if it has, or use `ToolSearch::bm25`",
        )),
        _ => Ok(is_searched),
    }
}

/// Returns `true` if the endpoint accepts this number of tools besides its search.
pub(crate) fn fits_with_search(tools: usize, endpoint: &Endpoint) -> bool {
    endpoint.max_tools.is_none_or(|max| tools < max)
}

/// Returns the tools; the named ones are not deferred.
///
/// A deferred tool is in a namespace of its own once the provider has found it, and the API rejects calls of it that name none: those
/// that are older than the search, and calls by other models.
pub(crate) fn without_deferral<'a>(
    tools: Cow<'a, ToolDefinitions>,
    names: &BTreeSet<String>,
) -> Cow<'a, ToolDefinitions> {
    let is_changed = |tool: &ToolDefinition| tool.is_deferred() && names.contains(tool.name());
    if !tools.iter().any(is_changed) {
        return tools;
    }
    let with_deferral =
        |tool: &ToolDefinition| tool.clone().with_deferred(tool.is_deferred() && !is_changed(tool));
    Cow::Owned(tools.iter().map(with_deferral).collect())
}

/// Returns the tools as a JSON array, or `None` if there are none. They are checked and encoded once per set.
pub(crate) fn encode(
    definitions: &ToolDefinitions,
    format: ToolFormat,
    is_searched: bool,
    endpoint: &Arc<Endpoint>,
    on_warning: Option<&WarningHook>,
) -> Result<Option<Arc<str>>, Error> {
    if definitions.is_empty() {
        return Ok(None);
    }
    let rules = Rules { format, is_searched, endpoint: Arc::clone(endpoint) };
    let cache = definitions.encoded(|_| EncodingCache::default());
    cache.get_or_encode(rules, |rules| rules.encode(definitions, on_warning)).map(Some)
}

/// Returns the value of `tool_choice`, or `None` for the API's default.
pub(crate) fn choice(choice: &ToolChoice, format: ToolFormat, endpoint: &Endpoint) -> Option<Value> {
    match (choice, format) {
        (ToolChoice::None, _) => Some("none".into()),
        (ToolChoice::Tool(name), ToolFormat::Nested) if endpoint.supports_named_tool_choice => {
            Some(json!({ "type": "function", "function": { "name": name } }))
        }
        (ToolChoice::Tool(name), ToolFormat::Flat) if endpoint.supports_named_tool_choice => {
            Some(json!({ "type": "function", "name": name }))
        }
        (ToolChoice::Required | ToolChoice::Tool(_), _) => {
            endpoint.required_tool_choice.as_deref().map(Value::from)
        }
        _ => None,
    }
}

impl Rules {
    fn encode(
        &self,
        definitions: &[ToolDefinition],
        on_warning: Option<&WarningHook>,
    ) -> Result<Arc<str>, String> {
        let mut violations = Vec::new();
        let has_search = self.is_searched && definitions.iter().any(ToolDefinition::is_deferred);
        let count = definitions.len() + usize::from(has_search);
        if let Some(max) = self.endpoint.max_tools.filter(|max| count > *max) {
            violations.push(format!("the request has {count} tools, but the endpoint accepts at most {max}"));
        }
        violations.extend(definitions.iter().filter_map(|definition| self.find_violation(definition)));
        if !violations.is_empty() {
            return Err(violations.join("; "));
        }
        let tools = definitions.iter().map(|definition| {
            let (description, removed_chars) = self.truncate_description(definition.description());
            if let (Some(on_warning), 1..) = (on_warning, removed_chars) {
                on_warning(&Warning::DescriptionTruncated { tool: definition.name(), removed_chars });
            }
            self.tool(definition, description)
        });
        let mut json = serde_json::to_string(&tools.collect::<Vec<_>>())
            .map_err(|error| format!("could not write the tools as JSON: {error}"))?;
        // The API rejects a search without deferred tools, and the reverse.
        if has_search {
            json.insert_str(json.len() - 1, &format!(",{TOOL_SEARCH}"));
        }
        Ok(json.into())
    }

    fn tool<'a>(&self, definition: &'a ToolDefinition, description: Option<Cow<'a, str>>) -> Tool<'a> {
        // The default is `true` in the Responses API, where the field is required, and `false` in Chat Completions.
        let has_strict = self.endpoint.supports_strict || self.format == ToolFormat::Flat;
        let is_strict = self.endpoint.supports_strict && definition.is_strict();
        let function = Function {
            name: definition.name(),
            description,
            parameters: definition.parameters(),
            strict: has_strict.then_some(is_strict),
            defer_loading: (self.is_searched && definition.is_deferred()).then_some(true),
        };
        let r#type = "function";
        match self.format {
            ToolFormat::Nested => Tool::Nested { r#type, function },
            ToolFormat::Flat => Tool::Flat { r#type, function },
        }
    }

    /// Returns why the endpoint would reject a tool and with it the whole request.
    fn find_violation(&self, definition: &ToolDefinition) -> Option<String> {
        let name = definition.name();
        if let Some(violation) = find_tool_violation(definition, MAX_NAME_CHARS) {
            return Some(violation);
        }
        if self.endpoint.tool_names_start_with_letter
            && !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        {
            return Some(format!(
                "invalid tool name `{name}`; this endpoint requires a letter or `_` at the start"
            ));
        }
        let parameters = definition.parameters();
        let keyword = TOP_LEVEL_KEYWORDS.iter().find(|keyword| parameters.get(**keyword).is_some());
        keyword.filter(|_| self.endpoint.requires_plain_parameters).map(|keyword| {
            format!("the parameters of the tool `{name}` have `{keyword}` at the top level, which the endpoint rejects; move it into a property")
        })
    }

    /// Returns a description of at most the maximum length, and how many characters were removed.
    fn truncate_description<'a>(&self, description: Option<&'a str>) -> (Option<Cow<'a, str>>, usize) {
        let (Some(text), Some(max)) = (description, self.endpoint.max_description_chars) else {
            return (description.map(Cow::Borrowed), 0);
        };
        let length = text.chars().count();
        if length <= max {
            return (Some(Cow::Borrowed(text)), 0);
        }
        let end = max.saturating_sub(1);
        let truncated: String = text.chars().take(end).chain(['…']).collect();
        ((max > 0).then_some(Cow::Owned(truncated)), length - end)
    }
}

/// A tool in the form of an API.
#[derive(Serialize)]
#[serde(untagged)]
enum Tool<'a> {
    Nested {
        r#type: &'static str,
        function: Function<'a>,
    },
    Flat {
        r#type: &'static str,
        #[serde(flatten)]
        function: Function<'a>,
    },
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<Cow<'a, str>>,
    parameters: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    defer_loading: Option<bool>,
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use tool_http::client::ErrorKind;

    fn set(definitions: impl IntoIterator<Item = ToolDefinition>) -> ToolDefinitions {
        definitions.into_iter().collect()
    }

    fn sent(definitions: &ToolDefinitions, format: ToolFormat, endpoint: &Endpoint) -> Result<Value, String> {
        match encode(definitions, format, false, &endpoint.clone().into(), None) {
            Ok(list) => Ok(serde_json::from_str(&list.unwrap()).unwrap()),
            Err(error) => {
                assert!(error.kind() == ErrorKind::InvalidRequest);
                Err(error.to_string())
            }
        }
    }

    #[test]
    fn both_formats_mark_strict_tools() {
        let strict = ToolDefinition::new("now").with_description("Returns the time").into_strict().unwrap();
        let tools = set([strict.clone(), ToolDefinition::new("then")]);
        let closed = strict.parameters();
        let now =
            json!({ "name": "now", "description": "Returns the time", "parameters": closed, "strict": true });
        let then = json!({ "name": "then", "parameters": closed, "strict": false });
        let nested =
            json!([{ "type": "function", "function": now }, { "type": "function", "function": then }]);
        assert_eq!(sent(&tools, ToolFormat::Nested, &Endpoint::openai()).unwrap(), nested);
        let flat = sent(&tools, ToolFormat::Flat, &Endpoint::openai()).unwrap();
        let function = |mut tool: Value| {
            tool["type"] = "function".into();
            tool
        };
        assert_eq!(flat, json!([function(now), function(then)]));
        let without = sent(&tools, ToolFormat::Nested, &Endpoint::gemini()).unwrap();
        assert_eq!(without[0]["function"].get("strict"), None);
        let without = sent(&tools, ToolFormat::Flat, &Endpoint::gemini()).unwrap();
        assert_eq!(without[0]["strict"], false);
    }

    #[test]
    fn rejects_tools_that_the_endpoint_would_reject() {
        let with = |parameters: Value| ToolDefinition::new("now").with_parameters(parameters);
        let many = (0..129).map(|number| ToolDefinition::new(format!("now_{number}")));
        let openai = Endpoint::openai();
        let table = [
            (set([ToolDefinition::new("")]), &openai, "invalid tool name ``; use 1 to 64"),
            (
                set([ToolDefinition::new("a b"), ToolDefinition::new("é")]),
                &openai,
                "invalid tool name `a b`; use 1 to 64 letters, digits, `_` and `-`; invalid tool name `é`; use",
            ),
            (
                set([ToolDefinition::new("1st")]),
                &Endpoint::gemini(),
                "invalid tool name `1st`; this endpoint requires a letter",
            ),
            (set(many), &openai, "the request has 129 tools, but the endpoint accepts at most 128"),
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
            let error = sent(&tools, ToolFormat::Nested, endpoint).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        let lenient = set([with(json!({ "type": "object", "oneOf": [] })), ToolDefinition::new("1st")]);
        assert!(sent(&lenient, ToolFormat::Nested, &Endpoint::vllm()).is_ok());
    }

    #[test]
    fn truncates_descriptions_beyond_the_limit() {
        let tools = set([
            ToolDefinition::new("now").with_description("Returns the time"),
            ToolDefinition::new("then").with_description("ééé"),
        ]);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let hook: WarningHook = {
            let seen = Arc::clone(&seen);
            Arc::new(move |warning| seen.lock().unwrap().push(warning.to_string()))
        };
        let mut endpoint = Endpoint::openai();
        for (max, expected, warnings) in [
            (None, json!("Returns the time"), 0),
            (Some(16), json!("Returns the time"), 0),
            (Some(6), json!("Retur…"), 1),
            (Some(0), Value::Null, 2),
        ] {
            endpoint.max_description_chars = max;
            seen.lock().unwrap().clear();
            // Encoded twice, but reported once per set.
            for _ in 0..2 {
                let endpoint = endpoint.clone().into();
                let list = encode(&tools, ToolFormat::Flat, false, &endpoint, Some(&hook)).unwrap().unwrap();
                let list: Value = serde_json::from_str(&list).unwrap();
                assert_eq!(list[0].get("description").unwrap_or(&Value::Null), &expected);
            }
            assert_eq!(seen.lock().unwrap().len(), warnings, "{max:?}");
        }
        let expected = "the description of the tool `now` was truncated by 16 characters";
        assert_eq!(seen.lock().unwrap()[0], expected);
    }

    #[test]
    fn translates_choices_that_the_endpoint_does_not_support() {
        let named = || ToolChoice::Tool("now".into());
        let table = [
            (ToolChoice::Auto, Endpoint::openai(), None),
            (ToolChoice::None, Endpoint::ollama(), Some(json!("none"))),
            (ToolChoice::Required, Endpoint::openai(), Some(json!("required"))),
            (ToolChoice::Required, Endpoint::mistral(), Some(json!("any"))),
            (ToolChoice::Required, Endpoint::ollama(), None),
            (
                named(),
                Endpoint::mistral(),
                Some(json!({ "type": "function", "function": { "name": "now" } })),
            ),
            (named(), Endpoint::lm_studio(), Some(json!("required"))),
            (named(), Endpoint::ollama(), None),
        ];
        for (tool_choice, endpoint, expected) in table {
            assert_eq!(choice(&tool_choice, ToolFormat::Nested, &endpoint), expected, "{:?}", endpoint.name);
        }
        let flat = choice(&named(), ToolFormat::Flat, &Endpoint::openai());
        assert_eq!(flat, Some(json!({ "type": "function", "name": "now" })));
    }

    #[test]
    fn encodes_tools_once_per_set_and_rules() {
        let tools = set([ToolDefinition::new("now")]);
        let at = |endpoint: Endpoint| {
            let list = encode(&tools, ToolFormat::Nested, false, &endpoint.into(), None).unwrap().unwrap();
            list.as_ptr()
        };
        assert_eq!(at(Endpoint::openai()), at(Endpoint::openai()));
        assert_ne!(at(Endpoint::openai()), at(Endpoint::gemini()));
    }

    #[test]
    fn offers_only_the_chosen_tool_if_it_cannot_be_named() {
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
            assert_eq!(offered.len(), expected, "{:?}", endpoint.name);
            assert_eq!(offered.last().unwrap().name(), "then");
        }
    }

    #[test]
    fn a_warning_hook_can_encode_the_same_tools() {
        let tools = set([ToolDefinition::new("now").with_description("Returns the time")]);
        let mut endpoint = Endpoint::openai();
        endpoint.max_description_chars = Some(5);
        let endpoint = Arc::new(endpoint);
        let hook: WarningHook = {
            let (tools, endpoint) = (tools.clone(), endpoint.clone());
            Arc::new(move |_| drop(encode(&tools, ToolFormat::Flat, false, &endpoint, None).unwrap()))
        };
        assert!(encode(&tools, ToolFormat::Flat, false, &endpoint, Some(&hook)).is_ok());
    }
}
