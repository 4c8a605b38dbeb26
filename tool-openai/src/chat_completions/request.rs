//! Encodes requests.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;
use tool_core::ModelOptions;
use tool_core::model::{ChatRequest, ResponseFormat, ToolChoice};

use super::Dialect;
use super::messages::MessageCache;
use crate::body::{BodyWriter, FieldWriter, RequestBody, reject_reserved};
use crate::json::write_string;
use crate::{Endpoint, Error};

/// The fields that extra fields must not set, and what sets them.
const RESERVED_FIELDS: [(&str, &str); 3] = [
    ("messages", "the messages of the request"),
    ("model", "`ModelOptions::model`"),
    ("stream", "`ChatModel::stream`"),
];

/// Encodes the body of a request to this model, with tools that are already encoded. The response format is a parameter
/// because not every server supports it.
///
/// The parts that stay the same from turn to turn come first, followed by the messages, which only grow: the body of a turn
/// starts with the bytes of the one before, so that the provider's prompt cache hits. Only the tool choice, which a run
/// changes once a tool was called, comes after the messages. Messages of earlier turns are copied from a cache.
///
/// # Errors
///
/// Fails if an option is not a finite number, an extra field is reserved, or a message cannot be expressed in the API.
pub(crate) fn encode(
    dialect: &Dialect,
    model: &str,
    request: &ChatRequest<'_>,
    tools: Option<&str>,
    format: Option<&ResponseFormat>,
    is_streamed: bool,
) -> Result<RequestBody, Error> {
    let (options, endpoint) = (request.options(), &*dialect.endpoint);
    reject_reserved(&options.extra, &RESERVED_FIELDS)?;
    request.cached(|cache: &mut MessageCache| {
        let messages = cache.append_new(request.messages(), dialect)?;
        let mut json = Vec::with_capacity(1024 + tools.map_or(0, str::len));
        json.extend_from_slice(br#"{"model":"#);
        write_string(&mut json, model);
        if is_streamed {
            json.extend_from_slice(br#","stream":true"#);
        }
        let mut fields = FieldWriter::new(json, &options.extra);
        if is_streamed && endpoint.supports_stream_options {
            fields.write_json("stream_options", Some(r#"{"include_usage":true}"#))?;
        }
        // The API rejects an empty array, and the other fields for tools without any.
        fields.write_json("tools", tools)?;
        let has_tools = tools.is_some() || fields.has_extra("tools");
        let parallel =
            request.parallel_tool_calls().filter(|_| has_tools && endpoint.supports_parallel_tool_calls);
        fields.write("parallel_tool_calls", parallel)?;
        write_options(&mut fields, options, endpoint)?;
        fields.write("response_format", format.map(|format| WireFormat(format, endpoint)))?;
        let has_choice = has_tools && !fields.has_extra("tool_choice");
        let mut body = BodyWriter::starting_with(fields.finish()?);
        body.json().extend_from_slice(br#","messages":"#);
        body.append(messages);
        let json = body.json();
        if messages.is_empty() {
            json.push(b'[');
        }
        json.push(b']');
        if has_choice {
            write_choice(json, request.tool_choice(), endpoint);
        }
        json.push(b'}');
        Ok(body.finish())
    })
}

fn write_choice(json: &mut Vec<u8>, choice: &ToolChoice, endpoint: &Endpoint) {
    match choice {
        ToolChoice::None => json.extend_from_slice(br#","tool_choice":"none""#),
        ToolChoice::Tool(name) if endpoint.supports_named_tool_choice => {
            json.extend_from_slice(br#","tool_choice":{"type":"function","function":{"name":"#);
            write_string(json, name);
            json.extend_from_slice(b"}}");
        }
        ToolChoice::Required | ToolChoice::Tool(_) => {
            if let Some(value) = &endpoint.required_tool_choice {
                json.extend_from_slice(br#","tool_choice":"#);
                write_string(json, value);
            }
        }
        // The API's default.
        _ => {}
    }
}

/// Writes the options that are set. Some servers reject unknown fields.
fn write_options(
    fields: &mut FieldWriter<'_>,
    options: &ModelOptions,
    endpoint: &Endpoint,
) -> Result<(), Error> {
    fields.write_number("temperature", options.temperature)?;
    fields.write_number("top_p", options.top_p)?;
    fields.write(&endpoint.max_tokens_field, options.max_output_tokens)?;
    fields.write(&endpoint.seed_field, options.seed)?;
    fields.write("stop", Some(&options.stop).filter(|stop| !stop.is_empty()))?;
    fields.write("reasoning_effort", options.reasoning_effort.as_ref())?;
    fields.write_number("frequency_penalty", options.frequency_penalty)?;
    fields.write_number("presence_penalty", options.presence_penalty)?;
    fields.write("logprobs", options.top_logprobs.map(|_| true))?;
    fields.write("top_logprobs", options.top_logprobs.filter(|count| *count > 0))?;
    fields.write("service_tier", options.service_tier.as_ref())?;
    fields.write("user", options.user.as_ref())?;
    fields.write("metadata", Some(&options.metadata).filter(|metadata| !metadata.is_empty()))
}

struct WireFormat<'a>(&'a ResponseFormat, &'a Endpoint);

impl Serialize for WireFormat<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct JsonSchema<'a> {
            name: &'a str,
            schema: &'a Value,
            #[serde(skip_serializing_if = "Option::is_none")]
            strict: Option<bool>,
        }

        let Self(format, endpoint) = self;
        // The strict form is less specific, and an endpoint without `strict` may well enforce the whole schema.
        let (schema, strict) = match endpoint.supports_strict {
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
    use tool_core::model::{AssistantMessage, ToolDefinition, ToolDefinitions};
    use tool_core::{Message, ToolCall, ToolOutput};

    use super::*;
    use crate::ErrorKind;
    use crate::chat_completions::tests::body;

    fn written(request: &ChatRequest<'_>) -> Value {
        written_for(Endpoint::openai(), request)
    }

    fn written_for(endpoint: Endpoint, request: &ChatRequest<'_>) -> Value {
        serde_json::from_slice(&body(endpoint, request, false).unwrap()).unwrap()
    }

    fn now() -> ToolDefinitions {
        ToolDefinitions::from_iter([ToolDefinition::new("now").with_description("Returns the time")])
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
    fn writes_tools_and_the_tool_choice() {
        let request =
            ChatRequest::new([Message::user("Hello")]).with_tools(now()).with_parallel_tool_calls(false);
        let body = written(&request);
        let parameters =
            json!({ "type": "object", "properties": {}, "required": [], "additionalProperties": false });
        let function = json!({ "name": "now", "description": "Returns the time", "parameters": parameters, "strict": false });
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
    fn omits_fields_for_tools_without_tools() {
        let request = ChatRequest::new([Message::user("Hello")])
            .with_tool_choice(ToolChoice::None)
            .with_parallel_tool_calls(true);
        assert_eq!(written(&request).as_object().unwrap().keys().collect::<Vec<_>>(), ["model", "messages"]);
    }

    #[test]
    fn writes_options_that_are_set() {
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
            .with_extra("top_k", 40);
        let table = [
            (ModelOptions::default(), json!({ "model": "m" })),
            (ModelOptions::default().with_seed(7), json!({ "model": "m", "seed": 7 })),
            (ModelOptions::default().with_top_logprobs(0), json!({ "model": "m", "logprobs": true })),
            // An extra field replaces a number or string of the same name.
            (
                ModelOptions::default().with_temperature(1.0).with_extra("temperature", "hot"),
                json!({ "model": "m", "temperature": "hot" }),
            ),
            (
                all,
                json!({
                    "model": "m",
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
    fn rejects_numbers_that_are_not_finite() {
        let table = [
            (ModelOptions::default().with_temperature(f64::NAN), "the option `temperature` is NaN"),
            (ModelOptions::default().with_top_p(f64::INFINITY), "the option `top_p` is inf"),
        ];
        for (options, expected) in table {
            let request = ChatRequest::new([Message::user("Hello")]).with_options(options);
            let error = body(Endpoint::openai(), &request, false).unwrap_err();
            assert!(
                error.kind() == ErrorKind::InvalidRequest && error.to_string().starts_with(expected),
                "{error}"
            );
        }
    }

    #[test]
    fn a_response_format_is_strict_if_possible() {
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
    fn an_endpoint_without_strict_receives_the_given_schema() {
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
        let repaired = body["messages"][1]["tool_calls"][1]["function"]["arguments"].as_str().unwrap();
        assert!(serde_json::from_str::<Value>(repaired).unwrap().is_object());
        assert_eq!(body["messages"][2], json!({ "role": "tool", "tool_call_id": "1", "content": "noon" }));
        assert_eq!(body["messages"][4], json!({ "role": "assistant", "content": "" }));
    }

    #[test]
    fn a_turn_starts_with_the_bytes_of_the_one_before() {
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
    fn allocations_per_turn_do_not_depend_on_the_number_of_tools() {
        let messages = vec![Message::user("When?"), Message::assistant("Now.")];
        let counts = [0, 1, 10, 100, 1000].map(|number| {
            let tools = (0..number).map(|number| {
                ToolDefinition::new(format!("now_{number}")).with_description("Returns the time")
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
    fn extra_fields_are_merged_into_fields_of_the_same_name() {
        let options = ModelOptions::default()
            .with_temperature(1.0)
            .with_stop(["a"])
            .with_metadata("a", "b")
            .with_extra("temperature", 2)
            .with_extra("stop", json!(["b"]))
            .with_extra("metadata", json!({ "c": "d" }))
            .with_extra("max_tokens", 9)
            .with_extra("stream_options", json!({ "include_obfuscation": false }))
            .with_extra("tools", json!([{ "type": "browser_search" }]))
            .with_extra("tool_choice", "required")
            .with_extra("parallel_tool_calls", false)
            .with_extra("response_format", json!({ "json_schema": { "description": "A place" } }));
        let options = options.with_max_output_tokens(8);
        let format = ResponseFormat::json_schema("place", json!({ "type": "object" }));
        let request = ChatRequest::new([Message::user("Where?")])
            .with_tools(now())
            .with_parallel_tool_calls(true)
            .with_tool_choice(ToolChoice::None)
            .with_options(options)
            .with_response_format(format);
        let sent: Value =
            serde_json::from_slice(&body(Endpoint::compatible(), &request, true).unwrap()).unwrap();
        assert_eq!(sent["temperature"], 2);
        assert_eq!(sent["stop"], json!(["a", "b"]));
        assert_eq!(sent["metadata"], json!({ "a": "b", "c": "d" }));
        assert_eq!(sent["max_tokens"], 9);
        assert_eq!(sent["stream_options"], json!({ "include_usage": true, "include_obfuscation": false }));
        assert_eq!(sent["tools"].as_array().unwrap().len(), 2);
        assert_eq!(sent["tools"][1], json!({ "type": "browser_search" }));
        assert_eq!(sent["tool_choice"], "required");
        assert_eq!(sent["parallel_tool_calls"], false);
        assert_eq!(sent["response_format"]["json_schema"]["name"], "place");
        assert_eq!(sent["response_format"]["json_schema"]["description"], "A place");
    }

    #[test]
    fn extra_tools_need_no_other_tools() {
        let options = ModelOptions::default().with_extra("tools", json!([{ "type": "browser_search" }]));
        let request = ChatRequest::new([Message::user("Hello")])
            .with_tool_choice(ToolChoice::Required)
            .with_parallel_tool_calls(false)
            .with_options(options);
        let body = written(&request);
        assert_eq!(body["tools"], json!([{ "type": "browser_search" }]));
        assert_eq!((&body["tool_choice"], &body["parallel_tool_calls"]), (&json!("required"), &json!(false)));
    }

    #[test]
    fn rejects_extra_fields_that_only_the_request_sets() {
        for name in ["messages", "model", "stream"] {
            let options = ModelOptions::default().with_extra(name, json!([]));
            let request = ChatRequest::new([Message::user("Hello")]).with_options(options);
            let error = body(Endpoint::compatible(), &request, false).unwrap_err();
            assert!(error.kind() == ErrorKind::InvalidRequest);
            assert!(error.to_string().starts_with(&format!("the extra field `{name}`")), "{error}");
        }
    }

    #[test]
    fn omits_or_translates_what_an_endpoint_does_not_support() {
        let mut bare = Endpoint::compatible();
        bare.supports_parallel_tool_calls = false;
        bare.required_tool_choice = None;
        bare.supports_named_tool_choice = false;
        bare.supports_strict = false;
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
            assert_eq!(body.get("parallel_tool_calls").is_some(), endpoint.supports_parallel_tool_calls);
            assert_eq!(body["tools"][0]["function"].get("strict").is_some(), endpoint.supports_strict);
            assert_eq!(
                body["response_format"]["json_schema"].get("strict").is_some(),
                endpoint.supports_strict
            );
        }
        let streamed = body(Endpoint::mistral(), &request(ToolChoice::Auto), true).unwrap();
        let streamed: Value = serde_json::from_slice(&streamed).unwrap();
        assert_eq!((&streamed["stream"], streamed.get("stream_options")), (&json!(true), None));
    }
}
