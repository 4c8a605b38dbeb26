//! Encodes requests.

use serde::Serialize;
use serde_json::json;
use tool_core::ModelOptions;
use tool_core::model::ChatRequest;
use tool_http::client::{Error, FieldWriter, RequestBody};

use super::dialect::Dialect;
use super::messages::MessageCache;
use crate::body;
use crate::endpoint::Endpoint;
use crate::json_schema::JsonSchema;
use crate::tools::{self, ToolFormat};
use crate::warning::WarningHook;

/// The fields that extra fields must not set, and what sets them.
const RESERVED_FIELDS: [(&str, &str); 3] = [
    ("messages", "the messages of the request"),
    ("model", "`ModelOptions::model`"),
    ("stream", "`ChatModel::stream`"),
];

/// Encodes the body of a request to this model. Messages of earlier turns are copied from a cache.
///
/// # Errors
///
/// Fails if an option is not a finite number, an extra field is reserved, or a tool or a message cannot be expressed in the
/// API.
pub(super) fn encode(
    dialect: &Dialect,
    model: &str,
    request: &ChatRequest<'_>,
    on_warning: Option<&WarningHook>,
    is_streamed: bool,
) -> Result<RequestBody, Error> {
    let (options, endpoint) = (request.options(), &dialect.endpoint);
    let is_searched = tools::is_searched(request, ToolFormat::Nested, endpoint)?;
    let offered = tools::offered(request, endpoint);
    let tools = tools::encode(&offered, ToolFormat::Nested, is_searched, endpoint, on_warning)?;
    request.cached(|cache: &mut MessageCache| {
        let messages = cache.append_new(request.messages(), dialect, on_warning)?;
        let tools = tools.as_ref();
        let mut fields = body::start(model, is_streamed, &options.extra, &RESERVED_FIELDS)?;
        if is_streamed && endpoint.supports_stream_options {
            fields.write_json("stream_options", Some(r#"{"include_usage":true}"#))?;
        }
        let cache = endpoint.writes_cache_control.then(|| json!({ "type": "ephemeral" }));
        fields.write("cache_control", cache)?;
        let choice = body::write_tools(&mut fields, tools, ToolFormat::Nested, request, endpoint)?;
        write_options(&mut fields, options, endpoint)?;
        let schema = JsonSchema::new(request.response_format(), endpoint);
        let format = schema.map(|json_schema| WireFormat { r#type: "json_schema", json_schema });
        fields.write("response_format", format)?;
        body::finish(fields, "messages", messages, choice)
    })
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

#[derive(Serialize)]
struct WireFormat<'a> {
    r#type: &'static str,
    json_schema: JsonSchema<'a>,
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tool_core::model::{AssistantMessage, ToolChoice, ToolDefinition};
    use tool_core::provider::{ResponseFormat, ToolDefinitions};
    use tool_core::{Message, ToolCall, ToolOutput};

    use super::*;
    use crate::chat_completions::tests::body;
    use tool_http::client::ErrorKind;

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
        let mut openrouter = Endpoint::openrouter();
        openrouter.writes_cache_control = true;
        let cache = json!({ "type": "ephemeral" });
        let expected = json!({ "model": "m", "cache_control": cache, "messages": messages });
        assert_eq!(written_for(openrouter.clone(), &request), expected);
        let hour = ModelOptions::default().with_extra("cache_control", json!({ "ttl": "1h" }));
        let sent = written_for(openrouter, &request.with_options(hour));
        assert_eq!(sent["cache_control"], json!({ "type": "ephemeral", "ttl": "1h" }));
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
    fn allocations_per_turn_do_not_depend_on_the_number_of_tools() {
        let messages = vec![Message::user("When?"), Message::assistant("Now.")];
        let dialect =
            Dialect { endpoint: std::sync::Arc::new(Endpoint::compatible()), provider: "test".into() };
        let counts = [0, 1, 10, 100, 1000].map(|number| {
            let tools = (0..number).map(|number| {
                ToolDefinition::new(format!("now_{number}")).with_description("Returns the time")
            });
            let tools = ToolDefinitions::from_iter(tools);
            let write = || {
                let request = ChatRequest::borrowing(&messages).with_tools(tools.clone());
                drop(encode(&dialect, "m", &request, None, true).unwrap());
            };
            write();
            let measured = allocation_counter::measure(write);
            (measured.count_total, measured.bytes_total)
        });
        // Long tools are shared by the requests, as chunks of their bodies, which are some allocations more.
        assert!(counts.iter().all(|(count, _)| *count <= counts[0].0 + 6), "{counts:?}");
        assert!(counts.iter().all(|(_, bytes)| *bytes < 40_000), "{counts:?}");
    }

    #[test]
    fn extra_fields_are_merged_into_fields_of_the_same_name() {
        let options = ModelOptions::default()
            .with_max_output_tokens(8)
            .with_extra("max_tokens", 9)
            .with_extra("stream_options", json!({ "include_obfuscation": false }))
            .with_extra("tools", json!([{ "type": "browser_search" }]))
            .with_extra("tool_choice", "required")
            .with_extra("parallel_tool_calls", false)
            .with_extra("response_format", json!({ "json_schema": { "description": "A place" } }));
        let format = ResponseFormat::json_schema("place", json!({ "type": "object" }));
        let request = ChatRequest::new([Message::user("Where?")])
            .with_tools(now())
            .with_parallel_tool_calls(true)
            .with_tool_choice(ToolChoice::None)
            .with_options(options)
            .with_response_format(format);
        let sent: Value =
            serde_json::from_slice(&body(Endpoint::compatible(), &request, true).unwrap()).unwrap();
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
        let request = ChatRequest::new([Message::user("When?")])
            .with_tools(now())
            .with_parallel_tool_calls(true)
            .with_options(ModelOptions::default().with_max_output_tokens(9).with_seed(7));
        for endpoint in [Endpoint::openai(), Endpoint::mistral(), Endpoint::ollama()] {
            let written = written_for(endpoint.clone(), &request);
            assert_eq!(written[&*endpoint.max_tokens_field], 9);
            assert_eq!(written[&*endpoint.seed_field], 7);
            assert_eq!(written.get("parallel_tool_calls").is_some(), endpoint.supports_parallel_tool_calls);
            let streamed = body(endpoint.clone(), &request, true).unwrap();
            let streamed: Value = serde_json::from_slice(&streamed).unwrap();
            assert_eq!(streamed["stream"], true);
            let usage = json!({ "include_usage": true });
            let expected = endpoint.supports_stream_options.then_some(&usage);
            assert_eq!(streamed.get("stream_options"), expected);
        }
    }
}
