//! Encodes requests.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};
use tool_core::ModelOptions;
use tool_core::model::ChatRequest;
use tool_http::client::{Error, FieldWriter, RequestBody};

use super::dialect::{Dialect, ReasoningOptions};
use super::input::InputCache;
use super::model_name::is_reasoning_model;
use crate::body;
use crate::json_schema::JsonSchema;
use crate::tools::{self, ToolFormat};
use crate::warning::WarningHook;

/// The fields that extra fields must not set, and what sets them.
const RESERVED_FIELDS: [(&str, &str); 4] = [
    ("input", "the messages of the request"),
    ("model", "`ModelOptions::model`"),
    ("store", "`Responses::store`"),
    ("stream", "`ChatModel::stream`"),
];

/// The fields of a request whose tokens are only counted: <https://developers.openai.com/api/reference/resources/responses>.
const COUNTED_FIELDS: [&str; 8] = [
    "conversation",
    "instructions",
    "previous_response_id",
    "reasoning",
    "text",
    "tool_choice",
    "tools",
    "truncation",
];

/// The fields of a request to compact its messages. The others are of the replies:
/// <https://developers.openai.com/api/reference/resources/responses/methods/compact>.
const COMPACTED_FIELDS: [&str; 4] =
    ["instructions", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"];

/// What a request is sent for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Purpose {
    Reply {
        is_streamed: bool,
    },
    /// The number of its tokens.
    Count,
    /// Its messages in a shorter form.
    Compaction,
}

/// Encodes the body of a request to this model. Messages of earlier turns are copied from a cache.
///
/// # Errors
///
/// Fails if an option is not a finite number or not supported by the API, an extra field is reserved, or a tool or a message
/// cannot be expressed in the API.
pub(super) fn encode(
    dialect: &Dialect,
    model: &str,
    reasoning: &ReasoningOptions,
    request: &ChatRequest<'_>,
    on_warning: Option<&WarningHook>,
    purpose: Purpose,
) -> Result<RequestBody, Error> {
    let (options, endpoint) = (request.options(), &dialect.endpoint);
    reject_unsupported(options)?;
    let is_counted = purpose == Purpose::Count;
    let named: Map<_, _>;
    let extra = match purpose {
        Purpose::Reply { .. } => &options.extra,
        Purpose::Count | Purpose::Compaction => {
            let names = if is_counted { &COUNTED_FIELDS[..] } else { &COMPACTED_FIELDS };
            let fields = options.extra.iter().filter(|(name, _)| names.contains(&name.as_str()));
            named = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
            &named
        }
    };
    if purpose == Purpose::Compaction {
        return encode_compaction(dialect, model, request, extra);
    }
    let offered = tools::offered(request, endpoint);
    let is_searched = tools::is_searched(request, ToolFormat::Flat, endpoint)?;
    request.cached(|cache: &mut InputCache| {
        let cache = cache.append_new(request.messages(), request.reasoning_start(), dialect)?;
        let offered = if is_searched {
            tools::without_deferral(offered, &cache.calls_without_namespace)
        } else {
            offered
        };
        let tools = tools::encode(&offered, ToolFormat::Flat, is_searched, endpoint, on_warning)?;
        let tools = tools.as_ref();
        let is_streamed = purpose == Purpose::Reply { is_streamed: true };
        let mut fields = body::start(model, is_streamed, extra, &RESERVED_FIELDS)?;
        if !is_counted {
            // The default is `true`.
            fields.write("store", Some(dialect.is_stored))?;
            let include = included_data(dialect, model, reasoning, options);
            fields.write("include", Some(include).filter(|include| !include.is_empty()))?;
        }
        let choice = body::write_tools(&mut fields, tools, ToolFormat::Flat, request, endpoint)?;
        if !is_counted {
            write_options(&mut fields, options)?;
        }
        let effort = options.reasoning_effort.as_ref().map(|effort| ("effort", effort));
        let summary = reasoning.summary.as_ref().map(|summary| ("summary", summary));
        let reasoning: BTreeMap<_, _> = effort.into_iter().chain(summary).collect();
        fields.write("reasoning", Some(reasoning).filter(|reasoning| !reasoning.is_empty()))?;
        let schema = JsonSchema::new(request.response_format(), endpoint);
        let format = schema.map(|schema| WireFormat { r#type: "json_schema", schema });
        fields.write("text", format.map(|format| WireText { format }))?;
        body::finish(fields, "input", &cache.json, choice)
    })
}

/// Encodes the body of a request to compact its messages, which has neither tools nor other options of a reply.
fn encode_compaction(
    dialect: &Dialect,
    model: &str,
    request: &ChatRequest<'_>,
    extra: &Map<String, Value>,
) -> Result<RequestBody, Error> {
    if request.summary_prompt().is_some() {
        return Err(Error::request(
            "the Responses API compacts conversations by a prompt of its own; leave out `Compaction::summary_prompt`",
        ));
    }
    request.cached(|cache: &mut InputCache| {
        let cache = cache.append_new(request.messages(), request.reasoning_start(), dialect)?;
        let mut fields = body::start(model, false, extra, &RESERVED_FIELDS)?;
        fields.write("service_tier", request.options().service_tier.as_ref())?;
        body::finish(fields, "input", &cache.json, None)
    })
}

/// Writes the options that are set. Some servers reject unknown fields.
fn write_options(fields: &mut FieldWriter<'_>, options: &ModelOptions) -> Result<(), Error> {
    fields.write_number("temperature", options.temperature)?;
    fields.write_number("top_p", options.top_p)?;
    fields.write("max_output_tokens", options.max_output_tokens)?;
    fields.write("top_logprobs", options.top_logprobs)?;
    fields.write("service_tier", options.service_tier.as_ref())?;
    fields.write("user", options.user.as_ref())?;
    fields.write("metadata", Some(&options.metadata).filter(|metadata| !metadata.is_empty()))
}

/// Returns the data that the response must include beyond the API's default.
fn included_data(
    dialect: &Dialect,
    model: &str,
    reasoning: &ReasoningOptions,
    options: &ModelOptions,
) -> Vec<&'static str> {
    let is_encrypted = reasoning
        .is_encrypted
        .unwrap_or_else(|| options.reasoning_effort.is_some() || is_reasoning_model(model));
    let mut include = Vec::new();
    // Stored reasoning is referred to by its id.
    if is_encrypted && !dialect.is_stored {
        include.push("reasoning.encrypted_content");
    }
    if options.top_logprobs.is_some() {
        include.push("message.output_text.logprobs");
    }
    include
}

/// Rejects options that the API does not have. Ignoring them would break the expectations of the caller.
fn reject_unsupported(options: &ModelOptions) -> Result<(), Error> {
    let unsupported = [
        ("stop", !options.stop.is_empty()),
        ("seed", options.seed.is_some()),
        ("frequency_penalty", options.frequency_penalty.is_some()),
        ("presence_penalty", options.presence_penalty.is_some()),
    ];
    match unsupported.into_iter().find(|(_, is_set)| *is_set) {
        Some((name, _)) => Err(Error::request(format!(
            "the Responses API does not support the option `{name}`; unset it, or use `OpenAi::chat_model`"
        ))),
        None => Ok(()),
    }
}

#[derive(Serialize)]
struct WireText<'a> {
    format: WireFormat<'a>,
}

#[derive(Serialize)]
struct WireFormat<'a> {
    r#type: &'static str,
    #[serde(flatten)]
    schema: JsonSchema<'a>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tool_core::Message;
    use tool_core::model::{ToolChoice, ToolDefinition};
    use tool_core::provider::{ResponseFormat, ToolDefinitions};

    use super::*;
    use crate::responses::tests::{dialect, stored};
    use tool_http::client::ErrorKind;

    fn sent(
        dialect: &Dialect,
        model: &str,
        reasoning: &ReasoningOptions,
        request: &ChatRequest<'_>,
    ) -> Result<Value, Error> {
        let body = encode(dialect, model, reasoning, request, None, Purpose::Reply { is_streamed: false })?;
        Ok(serde_json::from_slice(&body.to_vec()).unwrap())
    }

    fn written(request: &ChatRequest<'_>) -> Value {
        sent(&dialect(), "m", &ReasoningOptions::default(), request).unwrap()
    }

    fn hello() -> ChatRequest<'static> {
        ChatRequest::new([Message::user("Hello")])
    }

    fn now() -> ToolDefinitions {
        ToolDefinitions::from_iter([ToolDefinition::new("now").with_description("Returns the time")])
    }

    /// Returns the fields that a minimal request does not have.
    fn additional_fields(mut body: Value) -> Value {
        let fields = body.as_object_mut().unwrap();
        assert_eq!(fields.shift_remove("model"), Some(json!("m")));
        assert_eq!(fields.shift_remove("store"), Some(json!(false)));
        assert!(fields.shift_remove("input").is_some());
        body
    }

    #[test]
    fn a_plain_request() {
        let input = json!([{ "type": "message", "role": "user", "content": "Hello" }]);
        let expected = json!({ "model": "m", "store": false, "input": input });
        assert_eq!(written(&hello()).to_string(), expected.to_string());
        let streamed = encode(
            &dialect(),
            "m",
            &ReasoningOptions::default(),
            &hello(),
            None,
            Purpose::Reply { is_streamed: true },
        )
        .unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&streamed.to_vec()).unwrap()["stream"], true);
    }

    #[test]
    fn writes_options_that_are_set() {
        let all = ModelOptions::default()
            .with_temperature(0.0)
            .with_top_p(0.5)
            .with_max_output_tokens(99)
            .with_reasoning_effort("low")
            .with_top_logprobs(2)
            .with_service_tier("flex")
            .with_user("u1")
            .with_metadata("a", "b")
            .with_extra("truncation", "auto");
        let table = [
            (ModelOptions::default(), json!({})),
            (
                ModelOptions::default().with_top_logprobs(0),
                json!({ "include": ["message.output_text.logprobs"], "top_logprobs": 0 }),
            ),
            (
                ModelOptions::default().with_temperature(1.0).with_extra("temperature", 2),
                json!({ "temperature": 2 }),
            ),
            (
                ModelOptions::default().with_extra("tools", json!([{ "type": "web_search" }])),
                json!({ "tools": [{ "type": "web_search" }] }),
            ),
            (
                all,
                json!({
                    "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
                    "temperature": 0.0,
                    "top_p": 0.5,
                    "max_output_tokens": 99,
                    "top_logprobs": 2,
                    "service_tier": "flex",
                    "user": "u1",
                    "metadata": { "a": "b" },
                    "reasoning": { "effort": "low" },
                    "truncation": "auto",
                }),
            ),
        ];
        for (options, expected) in table {
            let body = additional_fields(written(&hello().with_options(options)));
            assert_eq!(body.to_string(), expected.to_string());
        }
    }

    #[test]
    fn extra_fields_are_merged_into_fields_of_the_same_name() {
        let closed =
            json!({ "type": "object", "properties": {}, "required": [], "additionalProperties": false });
        let options = ModelOptions::default()
            .with_reasoning_effort("low")
            .with_extra("text", json!({ "verbosity": "low" }))
            .with_extra("reasoning", json!({ "summary": "auto" }))
            .with_extra("include", json!(["web_search_call.action.sources"]))
            .with_extra("tools", json!([{ "type": "web_search" }]))
            .with_extra("tool_choice", json!({ "type": "web_search" }));
        let format = ResponseFormat::json_schema("place", closed);
        let request = hello().with_options(options).with_tools(now()).with_response_format(format);
        let body = written(&request.with_tool_choice(ToolChoice::Required));
        assert_eq!(
            (&body["text"]["format"]["type"], &body["text"]["format"]["name"]),
            (&json!("json_schema"), &json!("place"))
        );
        assert_eq!(body["text"]["verbosity"], "low");
        assert_eq!(body["reasoning"], json!({ "effort": "low", "summary": "auto" }));
        assert_eq!(body["include"], json!(["reasoning.encrypted_content", "web_search_call.action.sources"]));
        assert_eq!(body["tools"].as_array().unwrap().len(), 2);
        assert_eq!(body["tools"][1]["type"], "web_search");
        assert_eq!(body["tool_choice"], json!({ "type": "web_search" }));
    }

    #[test]
    fn requests_encrypted_reasoning_from_reasoning_models() {
        let (unset, yes, no) = (None, Some(true), Some(false));
        let table = [
            ("gpt-4.1-mini", unset, None, false),
            ("gpt-4.1-mini", yes, None, true),
            ("custom", unset, Some("low"), true),
            ("custom", no, Some("low"), false),
            ("o1", unset, None, true),
            ("o3-mini", unset, None, true),
            ("o4-mini", no, None, false),
            ("omni", unset, None, false),
            ("gpt-5", unset, None, true),
            ("gpt-5.1-codex", unset, None, true),
            ("gpt-12-nano", unset, None, true),
            ("gpt-5-chat-latest", unset, None, false),
            ("gpt-oss-120b", unset, None, false),
            ("codex-mini-latest", unset, None, true),
            ("openai/gpt-5-mini", unset, None, true),
            ("ft:o4-mini:acme", unset, None, true),
            ("", unset, None, false),
        ];
        for (model, is_encrypted, effort, expected) in table {
            let reasoning = ReasoningOptions { is_encrypted, summary: None };
            let mut options = ModelOptions::default();
            options.reasoning_effort = effort.map(str::to_owned);
            let request = hello().with_options(options);
            let include = |dialect| sent(&dialect, model, &reasoning, &request).unwrap()["include"].take();
            let include_expected =
                if expected { json!(["reasoning.encrypted_content"]) } else { json!(null) };
            assert_eq!(include(dialect()), include_expected, "{model} {is_encrypted:?} {effort:?}");
            assert_eq!(include(stored()), json!(null), "{model}, stored");
        }
    }

    #[test]
    fn requests_a_summary_together_with_the_effort() {
        let reasoning = ReasoningOptions { is_encrypted: None, summary: Some("auto".into()) };
        let low = ModelOptions::default().with_reasoning_effort("low");
        for (options, expected) in [
            (ModelOptions::default(), json!({ "summary": "auto" })),
            (low, json!({ "effort": "low", "summary": "auto" })),
        ] {
            let body = sent(&dialect(), "m", &reasoning, &hello().with_options(options)).unwrap();
            assert_eq!(body["reasoning"], expected);
        }
    }

    #[test]
    fn rejects_unsupported_options_and_reserved_fields() {
        let options = ModelOptions::default;
        let table = [
            (options().with_stop(["a"]), "the Responses API does not support the option `stop`; unset it"),
            (options().with_seed(1), "the Responses API does not support the option `seed`"),
            (
                options().with_frequency_penalty(0.0),
                "the Responses API does not support the option `frequency_penalty`",
            ),
            (
                options().with_presence_penalty(0.0),
                "the Responses API does not support the option `presence_penalty`",
            ),
            (options().with_temperature(f64::NAN), "the option `temperature` is NaN"),
            (options().with_top_p(f64::INFINITY), "the option `top_p` is inf"),
            (options().with_extra("input", "x"), "the extra field `input` is reserved; use the messages"),
            (options().with_extra("model", "x"), "the extra field `model`"),
            (options().with_extra("store", true), "the extra field `store`"),
            (options().with_extra("stream", true), "the extra field `stream`"),
        ];
        for (options, expected) in table {
            let request = hello().with_options(options);
            let error = sent(&dialect(), "m", &ReasoningOptions::default(), &request).unwrap_err();
            assert!(
                error.kind() == ErrorKind::InvalidRequest && error.to_string().starts_with(expected),
                "{error}"
            );
        }
    }
}
