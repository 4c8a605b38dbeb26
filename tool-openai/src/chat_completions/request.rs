//! The request, written straight from the core types.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use tool_core::{AnswerFormat, ChatRequest, ModelOptions, ToolChoice, ToolDefinition, ToolDefinitions};

use super::messages::WrittenMessages;
use crate::Error;
use crate::json::write_text;

/// The tools of a set, as they stand in every request of it.
struct WireTools(Result<Box<RawValue>, String>);

/// The body of a request. The answer format is given beside it, as not every server takes one.
///
/// What stays the same from turn to turn stands first and the messages, which only grow, behind it: so a
/// turn's body begins with the bytes of the one before, and the provider's cache of prompts hits. Only the choice of
/// tools, which a run changes once a tool was called, stands behind the messages.
///
/// A turn writes only the messages that are new; those of the turns before are copied as they were sent. They are written
/// piece by piece, with the names of the API as they stand here.
///
/// # Errors
///
/// An option is no number that JSON can say, or the messages hold what the API has no word for.
pub(crate) fn body(
    model: &str,
    request: &ChatRequest<'_>,
    format: Option<&AnswerFormat>,
    is_streamed: bool,
) -> Result<Vec<u8>, Error> {
    refuse_no_number(request.options())?;
    let tools = wire_tools(request.tools());
    let tools = match tools.as_deref() {
        None => None,
        Some(WireTools(Ok(tools))) => Some(tools.get()),
        Some(WireTools(Err(why))) => {
            return Err(Error::config(format!("the tools cannot be written as JSON: {why}")));
        }
    };
    request.cached(|written: &mut WrittenMessages| {
        let messages = written.with_new(request.messages())?;
        write(model, request, format, is_streamed, tools, messages)
    })
}

fn write(
    model: &str,
    request: &ChatRequest<'_>,
    format: Option<&AnswerFormat>,
    is_streamed: bool,
    tools: Option<&str>,
    messages: &[u8],
) -> Result<Vec<u8>, Error> {
    let mut json = Vec::with_capacity(1024 + tools.map_or(0, str::len) + messages.len());
    json.extend_from_slice(br#"{"model":"#);
    write_text(&mut json, request.options().model.as_deref().unwrap_or(model));
    if is_streamed {
        json.extend_from_slice(br#","stream":true,"stream_options":{"include_usage":true}"#);
    }
    // The API refuses an empty list, and these words without tools.
    if let Some(tools) = tools {
        json.extend_from_slice(br#","tools":"#);
        json.extend_from_slice(tools.as_bytes());
        match request.parallel_tool_calls() {
            Some(true) => json.extend_from_slice(br#","parallel_tool_calls":true"#),
            Some(false) => json.extend_from_slice(br#","parallel_tool_calls":false"#),
            None => {}
        }
    }
    write_options(&mut json, request.options())?;
    if let Some(format) = format {
        write_entry(&mut json, "response_format", &Format(format))?;
    }
    json.extend_from_slice(br#","messages":"#);
    json.extend_from_slice(messages);
    json.push(b']');
    if tools.is_some() {
        write_choice(&mut json, request.tool_choice());
    }
    json.push(b'}');
    Ok(json)
}

fn write_choice(json: &mut Vec<u8>, choice: &ToolChoice) {
    match choice {
        ToolChoice::None => json.extend_from_slice(br#","tool_choice":"none""#),
        ToolChoice::Required => json.extend_from_slice(br#","tool_choice":"required""#),
        ToolChoice::Tool(name) => {
            json.extend_from_slice(br#","tool_choice":{"type":"function","function":{"name":"#);
            write_text(json, name);
            json.extend_from_slice(b"}}");
        }
        // What the API does when it is told nothing.
        _ => {}
    }
}

/// What is unset is not written: some servers refuse words that they do not know.
fn write_options(json: &mut Vec<u8>, options: &ModelOptions) -> Result<(), Error> {
    if let Some(temperature) = options.temperature {
        write_entry(json, "temperature", &temperature)?;
    }
    if let Some(top_p) = options.top_p {
        write_entry(json, "top_p", &top_p)?;
    }
    if let Some(tokens) = options.max_output_tokens {
        write_entry(json, "max_completion_tokens", &tokens)?;
    }
    if let Some(seed) = options.seed {
        write_entry(json, "seed", &seed)?;
    }
    if !options.stop.is_empty() {
        write_entry(json, "stop", &options.stop)?;
    }
    if let Some(effort) = &options.reasoning_effort {
        write_entry(json, "reasoning_effort", effort)?;
    }
    Ok(())
}

/// Writes what few requests have, behind a comma.
fn write_entry(json: &mut Vec<u8>, name: &str, value: &impl Serialize) -> Result<(), Error> {
    json.push(b',');
    write_text(json, name);
    json.push(b':');
    serde_json::to_writer(json, value)
        .map_err(|error| Error::config(format!("`{name}` cannot be written as JSON: {error}")))
}

/// JSON has no word for infinity: it would be written as `null`, which the API reads as unset.
fn refuse_no_number(options: &ModelOptions) -> Result<(), Error> {
    for (name, number) in [("temperature", options.temperature), ("top_p", options.top_p)] {
        if let Some(number) = number.filter(|number| !number.is_finite()) {
            return Err(Error::config(format!("the option `{name}` is {number}; give a finite number")));
        }
    }
    Ok(())
}

fn wire_tools(definitions: &ToolDefinitions) -> Option<std::sync::Arc<WireTools>> {
    let encode = |list: &[ToolDefinition]| {
        let tools: Vec<_> = list.iter().map(Tool).collect();
        WireTools(serde_json::value::to_raw_value(&tools).map_err(|error| error.to_string()))
    };
    (!definitions.is_empty()).then(|| definitions.encoded(encode))
}

struct Tool<'a>(&'a ToolDefinition);

impl Serialize for Tool<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Function<'a>(&'a ToolDefinition);

        impl Serialize for Function<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut function = serializer.serialize_map(None)?;
                function.serialize_entry("name", self.0.name())?;
                if let Some(description) = self.0.description() {
                    function.serialize_entry("description", description)?;
                }
                function.serialize_entry("parameters", self.0.parameters())?;
                // Left out, it means `true` to one API and `false` to the other.
                function.serialize_entry("strict", &self.0.is_strict())?;
                function.end()
            }
        }

        let mut tool = serializer.serialize_map(Some(2))?;
        tool.serialize_entry("type", "function")?;
        tool.serialize_entry("function", &Function(self.0))?;
        tool.end()
    }
}

struct Format<'a>(&'a AnswerFormat);

impl Serialize for Format<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct JsonSchema<'a> {
            name: &'a str,
            schema: &'a Value,
            strict: bool,
        }

        let Self(format) = self;
        let schema = JsonSchema { name: format.name(), schema: format.schema(), strict: format.is_strict() };
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("type", "json_schema")?;
        map.serialize_entry("json_schema", &schema)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tool_core::{AssistantMessage, Message, ToolCall, ToolDefinitions, ToolOutput};

    use super::*;

    fn written(request: &ChatRequest<'_>) -> Value {
        serde_json::from_slice(&body("m", request, request.answer_format(), false).unwrap()).unwrap()
    }

    fn now() -> ToolDefinitions {
        ToolDefinitions::from_iter([ToolDefinition::new("now", "Tells the time")])
    }

    #[test]
    fn a_plain_request() {
        let request = ChatRequest::new([Message::system("Be brief."), Message::user("Hello")]);
        let messages =
            json!([{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "Hello" }]);
        assert_eq!(written(&request), json!({ "model": "m", "messages": messages }));
    }

    #[test]
    fn a_streamed_request_asks_for_usage() {
        let request = ChatRequest::new([Message::user("Hello")]);
        let body: Value = serde_json::from_slice(&body("m", &request, None, true).unwrap()).unwrap();
        assert_eq!(body["stream"], true);
        assert_eq!(body["stream_options"], json!({ "include_usage": true }));
    }

    #[test]
    fn tools_and_the_choice_among_them() {
        let request =
            ChatRequest::new([Message::user("Hello")]).with_tools(now()).with_parallel_tool_calls(false);
        let body = written(&request);
        let parameters =
            json!({ "type": "object", "properties": {}, "required": [], "additionalProperties": false });
        let function = json!({ "name": "now", "description": "Tells the time", "parameters": parameters, "strict": false });
        assert_eq!(body["tools"], json!([{ "type": "function", "function": function }]));
        assert_eq!(body["parallel_tool_calls"], false);
        assert_eq!(body.get("tool_choice"), None);
        let choices = [
            (ToolChoice::None, json!("none")),
            (ToolChoice::Required, json!("required")),
            (ToolChoice::Tool("now".into()), json!({ "type": "function", "function": { "name": "now" } })),
        ];
        for (choice, expected) in choices {
            assert_eq!(written(&request.clone().with_tool_choice(choice))["tool_choice"], expected);
        }
    }

    #[test]
    fn a_strict_tool_is_sent_as_such() {
        let strict = ToolDefinition::new("now", "Tells the time").into_strict().unwrap();
        let tools = ToolDefinitions::from_iter([strict, ToolDefinition::new("then", "Tells it later")]);
        let body = written(&ChatRequest::new([Message::user("Hello")]).with_tools(tools));
        let is_strict = [0, 1].map(|index| body["tools"][index]["function"]["strict"].clone());
        assert_eq!(is_strict, [json!(true), json!(false)]);
    }

    #[test]
    fn without_tools_there_is_no_word_of_tools() {
        let request = ChatRequest::new([Message::user("Hello")])
            .with_tool_choice(ToolChoice::None)
            .with_parallel_tool_calls(true);
        assert_eq!(written(&request).as_object().unwrap().keys().collect::<Vec<_>>(), ["model", "messages"]);
    }

    #[test]
    fn options_are_written_where_they_are_set() {
        let all = ModelOptions::default()
            .with_temperature(0.0)
            .with_top_p(0.5)
            .with_max_output_tokens(9)
            .with_seed(-1)
            .with_stop(["a", "b"])
            .with_reasoning_effort("low")
            .with_model("other");
        let table = [
            (ModelOptions::default(), json!({ "model": "m" })),
            (ModelOptions::default().with_seed(7), json!({ "model": "m", "seed": 7 })),
            (
                all,
                json!({
                    "model": "other",
                    "temperature": 0.0,
                    "top_p": 0.5,
                    "max_completion_tokens": 9,
                    "seed": -1,
                    "stop": ["a", "b"],
                    "reasoning_effort": "low",
                }),
            ),
        ];
        for (options, expected) in table {
            let mut body = written(&ChatRequest::new([Message::user("Hello")]).with_options(options));
            assert!(body.as_object_mut().unwrap().shift_remove("messages").is_some());
            assert_eq!(body, expected);
        }
    }

    #[test]
    fn an_option_that_is_no_number_is_refused() {
        let table = [
            (ModelOptions::default().with_temperature(f64::NAN), "the option `temperature` is NaN"),
            (ModelOptions::default().with_top_p(f64::INFINITY), "the option `top_p` is inf"),
        ];
        for (options, expected) in table {
            let request = ChatRequest::new([Message::user("Hello")]).with_options(options);
            let error = body("m", &request, None, false).unwrap_err();
            assert!(error.is_config() && error.to_string().starts_with(expected), "{error}");
        }
    }

    #[test]
    fn an_answer_format_is_strict_where_it_can_be() {
        let closed =
            json!({ "type": "object", "properties": {}, "required": [], "additionalProperties": false });
        let open = json!({ "type": "object", "additionalProperties": true });
        for (schema, is_strict) in [(closed, true), (open, false)] {
            let format = AnswerFormat::json_schema("place", schema.clone());
            let body = written(&ChatRequest::new([Message::user("Where?")]).with_answer_format(format));
            let json_schema = json!({ "name": "place", "schema": schema, "strict": is_strict });
            assert_eq!(body["response_format"], json!({ "type": "json_schema", "json_schema": json_schema }));
            assert_eq!(body.as_object().unwrap().keys().next_back().unwrap(), "messages");
        }
    }

    #[test]
    fn calls_and_results() {
        let calls = [ToolCall::new("1", "now", r#"{"zone": "UTC"}"#), ToolCall::new("2", "now", "{broken")];
        let results = calls.clone().map(|call| Message::tool(&call, &Ok(ToolOutput::text("noon"))));
        let mut messages = vec![Message::user("When?")];
        messages.push(Message::Assistant(AssistantMessage::default().with_tool_calls(calls)));
        messages.extend(results);
        messages.push(Message::assistant(""));
        let body = written(&ChatRequest::new(messages));
        assert_eq!(body["messages"][1]["content"], Value::Null);
        assert_eq!(body["messages"][1]["tool_calls"][0]["id"], "1");
        assert_eq!(body["messages"][1]["tool_calls"][0]["type"], "function");
        assert_eq!(body["messages"][1]["tool_calls"][0]["function"]["arguments"], r#"{"zone": "UTC"}"#);
        let mended = body["messages"][1]["tool_calls"][1]["function"]["arguments"].as_str().unwrap();
        assert!(serde_json::from_str::<Value>(mended).unwrap().is_object());
        assert_eq!(body["messages"][2], json!({ "role": "tool", "tool_call_id": "1", "content": "noon" }));
        assert_eq!(body["messages"][4], json!({ "role": "assistant", "content": "" }));
    }

    #[test]
    fn a_turn_begins_with_the_bytes_of_the_one_before() {
        let mut messages = vec![Message::user("When?")];
        let first = body("m", &ChatRequest::borrowing(&messages).with_tools(now()), None, true).unwrap();
        messages.push(Message::assistant("Now."));
        let second = body("m", &ChatRequest::borrowing(&messages).with_tools(now()), None, true).unwrap();
        let end = "]}".len();
        assert!(second.starts_with(&first[..first.len() - end]));
    }

    #[test]
    fn tools_are_written_once_per_set() {
        let definitions = now();
        let first = wire_tools(&definitions).unwrap();
        assert!(std::sync::Arc::ptr_eq(&first, &wire_tools(&definitions.clone()).unwrap()));
    }

    #[test]
    fn one_more_turn_costs_no_more_allocations_with_many_tools() {
        let messages = vec![Message::user("When?"), Message::assistant("Now.")];
        let counts = [0, 1, 10, 100, 1000].map(|number| {
            let tools =
                (0..number).map(|number| ToolDefinition::new(format!("now_{number}"), "Tells the time"));
            let tools = ToolDefinitions::from_iter(tools);
            let write = || {
                let request = ChatRequest::borrowing(&messages).with_tools(tools.clone());
                drop(body("m", &request, None, true).unwrap());
            };
            write();
            allocation_counter::measure(write).count_total
        });
        assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    }
}
