//! The request, written straight from the core types.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::{Map, Value};
use tool_core::{ChatRequest, ModelOptions, ResponseFormat, ToolChoice};

use super::Dialect;
use super::messages::WrittenMessages;
use crate::json::write_text;
use crate::pieces::{BodyWriter, RequestBody};
use crate::{Endpoint, Error};

/// The fields that are not the caller's to set.
const OWN_FIELDS: [&str; 7] =
    ["messages", "model", "parallel_tool_calls", "response_format", "stream", "tool_choice", "tools"];

/// The body of a request. The tools and the answer format are given beside it: the ones are written already, and not
/// every server takes the other.
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
    dialect: &Dialect,
    model: &str,
    request: &ChatRequest<'_>,
    tools: Option<&str>,
    format: Option<&ResponseFormat>,
    is_streamed: bool,
) -> Result<RequestBody, Error> {
    request.cached(|written: &mut WrittenMessages| {
        let messages = written.with_new(request.messages(), dialect)?;
        let endpoint = &*dialect.endpoint;
        let mut body = BodyWriter::with_capacity(1024 + tools.map_or(0, str::len));
        let json = body.json();
        json.extend_from_slice(br#"{"model":"#);
        write_text(json, request.options().model.as_deref().unwrap_or(model));
        if is_streamed {
            json.extend_from_slice(br#","stream":true"#);
            if endpoint.stream_options && !request.options().extra.contains_key("stream_options") {
                json.extend_from_slice(br#","stream_options":{"include_usage":true}"#);
            }
        }
        // The API refuses an empty list, and these words without tools.
        if let Some(tools) = tools {
            json.extend_from_slice(br#","tools":"#);
            json.extend_from_slice(tools.as_bytes());
            match request.parallel_tool_calls().filter(|_| endpoint.parallel_tool_calls) {
                Some(true) => json.extend_from_slice(br#","parallel_tool_calls":true"#),
                Some(false) => json.extend_from_slice(br#","parallel_tool_calls":false"#),
                None => {}
            }
        }
        write_options(json, request.options(), endpoint)?;
        if let Some(format) = format {
            write_entry(json, "response_format", &Format(format, endpoint))?;
        }
        json.extend_from_slice(br#","messages":"#);
        body.append(messages);
        let json = body.json();
        if messages.is_empty() {
            json.push(b'[');
        }
        json.push(b']');
        if tools.is_some() {
            write_choice(json, request.tool_choice(), endpoint);
        }
        json.push(b'}');
        Ok(body.finish())
    })
}

fn write_choice(json: &mut Vec<u8>, choice: &ToolChoice, endpoint: &Endpoint) {
    match choice {
        ToolChoice::None => json.extend_from_slice(br#","tool_choice":"none""#),
        ToolChoice::Tool(name) if endpoint.named_tool_choice => {
            json.extend_from_slice(br#","tool_choice":{"type":"function","function":{"name":"#);
            write_text(json, name);
            json.extend_from_slice(b"}}");
        }
        ToolChoice::Required | ToolChoice::Tool(_) => {
            if let Some(word) = &endpoint.required_tool_choice {
                json.extend_from_slice(br#","tool_choice":"#);
                write_text(json, word);
            }
        }
        // What the API does when it is told nothing.
        _ => {}
    }
}

/// What is unset is not written: some servers refuse words that they do not know.
fn write_options(json: &mut Vec<u8>, options: &ModelOptions, endpoint: &Endpoint) -> Result<(), Error> {
    if let Some(name) = options.extra.keys().find(|name| OWN_FIELDS.contains(&&***name)) {
        return Err(Error::request(format!(
            "the further field `{name}` of the options is one that the request has already; set it there"
        )));
    }
    let mut options_json = Options { json, extra: &options.extra };
    options_json.number("temperature", options.temperature)?;
    options_json.number("top_p", options.top_p)?;
    options_json.entry(&endpoint.max_tokens_field, options.max_output_tokens)?;
    options_json.entry(&endpoint.seed_field, options.seed)?;
    options_json.entry("stop", Some(&options.stop).filter(|texts| !texts.is_empty()))?;
    options_json.entry("reasoning_effort", options.reasoning_effort.as_ref())?;
    options_json.number("frequency_penalty", options.frequency_penalty)?;
    options_json.number("presence_penalty", options.presence_penalty)?;
    options_json.entry("logprobs", options.top_logprobs.map(|_| true))?;
    options_json.entry("top_logprobs", options.top_logprobs.filter(|others| *others > 0))?;
    options_json.entry("service_tier", options.service_tier.as_ref())?;
    options_json.entry("user", options.user.as_ref())?;
    options_json.entry("metadata", Some(&options.metadata).filter(|entries| !entries.is_empty()))?;
    for (name, value) in &options.extra {
        write_entry(json, name, value)?;
    }
    Ok(())
}

/// Options, as they are written.
struct Options<'a> {
    json: &'a mut Vec<u8>,
    /// Further fields, which win over the ones of the same name.
    extra: &'a Map<String, Value>,
}

impl Options<'_> {
    fn entry(&mut self, name: &str, value: Option<impl Serialize>) -> Result<(), Error> {
        match value {
            Some(value) if !self.extra.contains_key(name) => write_entry(self.json, name, &value),
            _ => Ok(()),
        }
    }

    /// JSON has no word for infinity: it would be written as `null`, which the API reads as unset.
    fn number(&mut self, name: &str, number: Option<f64>) -> Result<(), Error> {
        match number {
            Some(number) if !number.is_finite() => {
                Err(Error::request(format!("the option `{name}` is {number}; give a finite number")))
            }
            _ => self.entry(name, number),
        }
    }
}

/// Writes what few requests have, behind a comma.
fn write_entry(json: &mut Vec<u8>, name: &str, value: &impl Serialize) -> Result<(), Error> {
    json.push(b',');
    write_text(json, name);
    json.push(b':');
    serde_json::to_writer(json, value)
        .map_err(|error| Error::config(format!("`{name}` cannot be written as JSON: {error}")))
}

struct Format<'a>(&'a ResponseFormat, &'a Endpoint);

impl Serialize for Format<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct JsonSchema<'a> {
            name: &'a str,
            schema: &'a Value,
            #[serde(skip_serializing_if = "Option::is_none")]
            strict: Option<bool>,
        }

        let Self(format, endpoint) = self;
        // The strict form says less: an endpoint that has no word for it may well hold the model to all of the schema.
        let (schema, strict) = match endpoint.strict {
            true => (format.schema(), Some(format.is_strict())),
            false => (format.original_schema(), None),
        };
        let schema = JsonSchema { name: format.name(), schema, strict };
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("type", "json_schema")?;
        map.serialize_entry("json_schema", &schema)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tool_core::{AssistantMessage, Message, ToolCall, ToolDefinition, ToolDefinitions, ToolOutput};

    use super::*;
    use crate::chat_completions::tests::body;

    fn written(request: &ChatRequest<'_>) -> Value {
        written_for(Endpoint::openai(), request)
    }

    fn written_for(endpoint: Endpoint, request: &ChatRequest<'_>) -> Value {
        serde_json::from_slice(&body(endpoint, request, false).unwrap()).unwrap()
    }

    fn now() -> ToolDefinitions {
        ToolDefinitions::from_iter([ToolDefinition::new("now").with_description("Tells the time")])
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
        let body: Value = serde_json::from_slice(&body(Endpoint::openai(), &request, true).unwrap()).unwrap();
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
            .with_frequency_penalty(0.5)
            .with_presence_penalty(-0.5)
            .with_top_logprobs(2)
            .with_service_tier("flex")
            .with_user("u1")
            .with_metadata("a", "b")
            .with_extra("top_k", 40)
            .with_model("other");
        let table = [
            (ModelOptions::default(), json!({ "model": "m" })),
            (ModelOptions::default().with_seed(7), json!({ "model": "m", "seed": 7 })),
            (ModelOptions::default().with_top_logprobs(0), json!({ "model": "m", "logprobs": true })),
            // A further field wins over an option of its name.
            (
                ModelOptions::default().with_temperature(1.0).with_extra("temperature", "hot"),
                json!({ "model": "m", "temperature": "hot" }),
            ),
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
                    "frequency_penalty": 0.5,
                    "presence_penalty": -0.5,
                    "logprobs": true,
                    "top_logprobs": 2,
                    "service_tier": "flex",
                    "user": "u1",
                    "metadata": { "a": "b" },
                    "top_k": 40,
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
            let error = body(Endpoint::openai(), &request, false).unwrap_err();
            assert!(error.is_invalid_request() && error.to_string().starts_with(expected), "{error}");
        }
    }

    #[test]
    fn an_answer_format_is_strict_where_it_can_be() {
        let closed =
            json!({ "type": "object", "properties": {}, "required": [], "additionalProperties": false });
        let open = json!({ "type": "object", "additionalProperties": true });
        for (schema, is_strict) in [(closed, true), (open, false)] {
            let format = ResponseFormat::json_schema("place", schema.clone());
            let body = written(&ChatRequest::new([Message::user("Where?")]).with_response_format(format));
            let json_schema = json!({ "name": "place", "schema": schema, "strict": is_strict });
            assert_eq!(body["response_format"], json!({ "type": "json_schema", "json_schema": json_schema }));
            assert_eq!(body.as_object().unwrap().keys().next_back().unwrap(), "messages");
        }
    }

    #[test]
    fn an_endpoint_without_strict_is_sent_the_schema_as_it_was_given() {
        let given =
            json!({ "type": "object", "properties": { "name": { "type": "string", "maxLength": 9 } } });
        let format = ResponseFormat::json_schema("place", given.clone());
        assert!(format.is_strict());
        let request = ChatRequest::new([Message::user("Where?")]).with_response_format(format);
        let sent = written_for(Endpoint::llama_cpp(), &request)["response_format"]["json_schema"].take();
        assert_eq!(sent, json!({ "name": "place", "schema": given }));
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
        let first =
            body(Endpoint::openai(), &ChatRequest::borrowing(&messages).with_tools(now()), true).unwrap();
        messages.push(Message::assistant("Now."));
        let second =
            body(Endpoint::openai(), &ChatRequest::borrowing(&messages).with_tools(now()), true).unwrap();
        let end = "]}".len();
        assert!(second.starts_with(&first[..first.len() - end]));
    }

    #[test]
    fn one_more_turn_costs_no_more_allocations_with_many_tools() {
        let messages = vec![Message::user("When?"), Message::assistant("Now.")];
        let counts = [0, 1, 10, 100, 1000].map(|number| {
            let tools = (0..number).map(|number| {
                ToolDefinition::new(format!("now_{number}")).with_description("Tells the time")
            });
            let tools = ToolDefinitions::from_iter(tools);
            let write = || {
                let request = ChatRequest::borrowing(&messages).with_tools(tools.clone());
                drop(body(Endpoint::compatible(), &request, true).unwrap());
            };
            write();
            allocation_counter::measure(write).count_total
        });
        assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    }

    #[test]
    fn a_field_that_the_request_has_cannot_be_a_further_one() {
        let options = ModelOptions::default().with_extra("messages", json!([]));
        let request = ChatRequest::new([Message::user("Hello")]).with_options(options);
        let error = body(Endpoint::compatible(), &request, false).unwrap_err();
        assert!(error.is_invalid_request());
        assert!(error.to_string().starts_with("the further field `messages`"), "{error}");
    }

    #[test]
    fn words_that_an_endpoint_does_not_know_are_left_out_or_said_otherwise() {
        let mut bare = Endpoint::compatible();
        bare.parallel_tool_calls = false;
        bare.required_tool_choice = None;
        bare.named_tool_choice = false;
        bare.strict = false;
        let request = |choice: ToolChoice| {
            ChatRequest::new([Message::user("When?")])
                .with_tools(now())
                .with_tool_choice(choice)
                .with_parallel_tool_calls(true)
                .with_options(ModelOptions::default().with_max_output_tokens(9).with_seed(7))
                .with_response_format(ResponseFormat::json_schema("a", json!({ "type": "object" })))
        };
        let named = || ToolChoice::Tool("now".into());
        let table = [
            (bare.clone(), ToolChoice::Required, json!(null)),
            (bare, named(), json!(null)),
            (Endpoint::lm_studio(), named(), json!("required")),
            (Endpoint::mistral(), ToolChoice::Required, json!("any")),
            (Endpoint::mistral(), named(), json!({ "type": "function", "function": { "name": "now" } })),
        ];
        for (endpoint, choice, expected) in table {
            let body = written_for(endpoint.clone(), &request(choice));
            assert_eq!(*body.get("tool_choice").unwrap_or(&Value::Null), expected, "{endpoint:?}");
            assert_eq!(body["max_tokens"], 9);
            assert_eq!(body[&*endpoint.seed_field], 7);
            assert_eq!(body.get("parallel_tool_calls").is_some(), endpoint.parallel_tool_calls);
            assert_eq!(body["tools"][0]["function"].get("strict").is_some(), endpoint.strict);
            assert_eq!(body["response_format"]["json_schema"].get("strict").is_some(), endpoint.strict);
        }
        let streamed = body(Endpoint::mistral(), &request(ToolChoice::Auto), true).unwrap();
        let streamed: Value = serde_json::from_slice(&streamed).unwrap();
        assert_eq!((&streamed["stream"], streamed.get("stream_options")), (&json!(true), None));
    }
}
