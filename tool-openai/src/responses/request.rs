//! The request, written straight from the core types.

use serde::Serialize;
use serde_json::Value;
use tool_core::{ChatRequest, ModelOptions, ResponseFormat, ToolChoice};

use super::input::WrittenInput;
use super::{Dialect, Reasoning};
use crate::fields::Fields;
use crate::json::write_text;
use crate::pieces::{BodyWriter, RequestBody};
use crate::{Endpoint, Error};

/// Fields that no further field may set, and where they are set.
const SET_ELSEWHERE: [(&str, &str); 4] = [
    ("input", "the messages of the request"),
    ("model", "the option `model`"),
    ("store", "`Responses::with_store`"),
    ("stream", "streaming the request"),
];

/// The body of a request to this model. The tools are given beside it, as they are written already.
///
/// What stays the same from turn to turn stands first and the input, which only grows, behind it: so a turn's body begins
/// with the bytes of the one before, and the provider's cache of prompts hits. Only the choice of tools, which a run
/// changes once a tool was called, stands behind the input.
///
/// # Errors
///
/// An option is no number that JSON can say or none that the API has, or the messages hold what it has no word for.
pub(super) fn body(
    dialect: &Dialect,
    model: &str,
    reasoning: &Reasoning,
    request: &ChatRequest<'_>,
    tools: Option<&str>,
    is_streamed: bool,
) -> Result<RequestBody, Error> {
    let (options, endpoint) = (request.options(), &*dialect.endpoint);
    refuse_what_there_is_not(options)?;
    request.cached(|written: &mut WrittenInput| {
        let input = written.with_new(request.messages(), dialect)?;
        let mut json = Vec::with_capacity(1024 + tools.map_or(0, str::len));
        json.extend_from_slice(br#"{"model":"#);
        write_text(&mut json, model);
        if is_streamed {
            json.extend_from_slice(br#","stream":true"#);
        }
        // Left out, it means `true`.
        json.extend_from_slice(if dialect.is_stored { br#","store":true"# } else { br#","store":false"# });
        let mut fields = Fields::behind(json, &options.extra);
        let included = included(dialect, model, reasoning, options);
        fields.write_set("include", Some(included).filter(|included| !included.is_empty()))?;
        // The API refuses an empty list, and words of tools without tools.
        fields.write_json("tools", tools)?;
        let has_tools = tools.is_some() || fields.has_further("tools");
        let parallel = request.parallel_tool_calls().filter(|_| has_tools && endpoint.parallel_tool_calls);
        fields.write_set("parallel_tool_calls", parallel)?;
        write_options(&mut fields, options)?;
        fields.write_set("reasoning", WireReasoning::of(options, reasoning))?;
        let format = request.response_format().filter(|_| endpoint.json_schema);
        fields.write_set("text", format.map(|format| Text::of(format, endpoint)))?;
        let has_choice = has_tools && !fields.has_further("tool_choice");
        let mut body = BodyWriter::behind(fields.with_further()?);
        body.json().extend_from_slice(br#","input":"#);
        body.append(input);
        let json = body.json();
        if input.is_empty() {
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

/// What is unset is not written: some servers refuse words that they do not know.
fn write_options(fields: &mut Fields<'_>, options: &ModelOptions) -> Result<(), Error> {
    fields.write_set("temperature", options.temperature)?;
    fields.write_set("top_p", options.top_p)?;
    fields.write_set("max_output_tokens", options.max_output_tokens)?;
    fields.write_set("top_logprobs", options.top_logprobs)?;
    fields.write_set("service_tier", options.service_tier.as_ref())?;
    fields.write_set("user", options.user.as_ref())?;
    fields.write_set("metadata", Some(&options.metadata).filter(|metadata| !metadata.is_empty()))
}

fn write_choice(json: &mut Vec<u8>, choice: &ToolChoice, endpoint: &Endpoint) {
    match choice {
        ToolChoice::None => json.extend_from_slice(br#","tool_choice":"none""#),
        ToolChoice::Tool(name) if endpoint.named_tool_choice => {
            json.extend_from_slice(br#","tool_choice":{"type":"function","name":"#);
            write_text(json, name);
            json.push(b'}');
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

/// What is asked for beyond what the API tells by itself.
fn included(
    dialect: &Dialect,
    model: &str,
    reasoning: &Reasoning,
    options: &ModelOptions,
) -> Vec<&'static str> {
    let is_encrypted =
        reasoning.is_encrypted.unwrap_or_else(|| options.reasoning_effort.is_some() || reasons(model));
    let mut included = Vec::new();
    // What is stored is there to be referred to.
    if is_encrypted && !dialect.is_stored {
        included.push("reasoning.encrypted_content");
    }
    if options.top_logprobs.is_some() {
        included.push("message.output_text.logprobs");
    }
    included
}

/// The model's name says that it reasons: `o1` and its successors, `gpt-5` and its, but for the models that only chat.
fn reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let name = name.strip_prefix("ft:").unwrap_or(name);
    let begins_with_number = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    let generation = |rest: &str| {
        let end = rest.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse::<u32>().ok()
    };
    match (name.strip_prefix('o'), name.strip_prefix("gpt-")) {
        (Some(rest), _) => begins_with_number(rest),
        (_, Some(rest)) => generation(rest).is_some_and(|number| number >= 5) && !rest.contains("-chat"),
        _ => name.starts_with("codex-"),
    }
}

/// Options that the API does not have are refused, as a run that relies on them would not be what it seems. And JSON has
/// no word for infinity: it would be written as `null`, which the API reads as unset.
fn refuse_what_there_is_not(options: &ModelOptions) -> Result<(), Error> {
    let set = [
        ("stop", !options.stop.is_empty()),
        ("seed", options.seed.is_some()),
        ("frequency_penalty", options.frequency_penalty.is_some()),
        ("presence_penalty", options.presence_penalty.is_some()),
    ];
    if let Some((name, _)) = set.into_iter().find(|(_, is_set)| *is_set) {
        return Err(Error::request(format!(
            "the Responses API has no option `{name}`; leave it out, or ask through Chat Completions with `OpenAi::chat_model`"
        )));
    }
    for (name, number) in [("temperature", options.temperature), ("top_p", options.top_p)] {
        if let Some(number) = number.filter(|number| !number.is_finite()) {
            return Err(Error::request(format!("the option `{name}` is {number}; give a finite number")));
        }
    }
    match SET_ELSEWHERE.iter().find(|(name, _)| options.extra.contains_key(*name)) {
        Some((name, place)) => Err(Error::request(format!(
            "the further field `{name}` of the options is one that the request has already; set it by {place}"
        ))),
        None => Ok(()),
    }
}

#[derive(Serialize)]
struct WireReasoning<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'a str>,
}

impl<'a> WireReasoning<'a> {
    fn of(options: &'a ModelOptions, reasoning: &'a Reasoning) -> Option<Self> {
        let (effort, summary) = (options.reasoning_effort.as_deref(), reasoning.summary.as_deref());
        (effort.is_some() || summary.is_some()).then_some(Self { effort, summary })
    }
}

#[derive(Serialize)]
struct Text<'a> {
    format: JsonSchema<'a>,
}

#[derive(Serialize)]
struct JsonSchema<'a> {
    r#type: &'static str,
    name: &'a str,
    schema: &'a Value,
    strict: bool,
}

impl<'a> Text<'a> {
    fn of(format: &'a ResponseFormat, endpoint: &Endpoint) -> Self {
        let strict = format.is_strict() && endpoint.strict;
        let (name, schema) = (format.name(), format.schema());
        Self { format: JsonSchema { r#type: "json_schema", name, schema, strict } }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tool_core::{Message, ToolDefinition, ToolDefinitions};

    use super::*;
    use crate::responses::tests::{dialect, stored};
    use crate::tools::{self, Form};

    fn sent(
        dialect: &Dialect,
        model: &str,
        reasoning: &Reasoning,
        request: &ChatRequest<'_>,
    ) -> Result<Value, Error> {
        let tools = tools::written(request.tools(), Form::Flat, &dialect.endpoint, None)?;
        let tools = tools.as_ref().map(AsRef::as_ref);
        let body = body(dialect, model, reasoning, request, tools, false)?;
        Ok(serde_json::from_slice(&body.to_vec()).unwrap())
    }

    fn written(request: &ChatRequest<'_>) -> Value {
        sent(&dialect(), "m", &Reasoning::default(), request).unwrap()
    }

    fn hello() -> ChatRequest<'static> {
        ChatRequest::new([Message::user("Hello")])
    }

    fn now() -> ToolDefinitions {
        ToolDefinitions::from_iter([ToolDefinition::new("now").with_description("Tells the time")])
    }

    /// The fields beside those of the plainest request.
    fn further(mut body: Value) -> Value {
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
        let streamed = body(&dialect(), "m", &Reasoning::default(), &hello(), None, true).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&streamed.to_vec()).unwrap()["stream"], true);
    }

    #[test]
    fn tools_and_the_choice_among_them() {
        let request = hello().with_tools(now()).with_parallel_tool_calls(false);
        let body = written(&request);
        let parameters =
            json!({ "type": "object", "properties": {}, "required": [], "additionalProperties": false });
        let tool = json!({ "type": "function", "name": "now", "description": "Tells the time", "parameters": parameters, "strict": false });
        assert_eq!(body["tools"], json!([tool]));
        assert_eq!(body["parallel_tool_calls"], false);
        assert_eq!(body.get("tool_choice"), None);
        let choices = [
            (ToolChoice::None, json!("none")),
            (ToolChoice::Required, json!("required")),
            (ToolChoice::Tool("now".into()), json!({ "type": "function", "name": "now" })),
        ];
        for (choice, expected) in choices {
            let body = written(&request.clone().with_tool_choice(choice));
            assert_eq!(body["tool_choice"], expected);
            assert_eq!(body.as_object().unwrap().keys().next_back().unwrap(), "tool_choice");
        }
    }

    #[test]
    fn without_tools_there_is_no_word_of_tools() {
        let request = hello().with_tool_choice(ToolChoice::None).with_parallel_tool_calls(true);
        assert_eq!(further(written(&request)), json!({}));
    }

    #[test]
    fn what_an_endpoint_does_not_know_is_not_said() {
        let closed =
            json!({ "type": "object", "properties": {}, "required": [], "additionalProperties": false });
        let request = hello()
            .with_tools(ToolDefinitions::from_iter([ToolDefinition::new("now").into_strict().unwrap()]))
            .with_parallel_tool_calls(true)
            .with_tool_choice(ToolChoice::Tool("now".into()))
            .with_response_format(ResponseFormat::json_schema("place", closed));
        let mut endpoint = Endpoint::openai();
        endpoint.strict = false;
        endpoint.parallel_tool_calls = false;
        endpoint.named_tool_choice = false;
        let other = Dialect { endpoint: endpoint.clone().into(), ..dialect() };
        let body = sent(&other, "m", &Reasoning::default(), &request).unwrap();
        assert_eq!(body.get("parallel_tool_calls"), None);
        assert_eq!(body["tool_choice"], "required");
        // The API wants the word of every tool.
        assert_eq!(
            (&body["tools"][0]["strict"], &body["text"]["format"]["strict"]),
            (&json!(false), &json!(false))
        );
        endpoint.required_tool_choice = None;
        endpoint.json_schema = false;
        let other = Dialect { endpoint: endpoint.into(), ..dialect() };
        let body = sent(&other, "m", &Reasoning::default(), &request).unwrap();
        assert_eq!((body.get("tool_choice"), body.get("text")), (None, None));
    }

    #[test]
    fn options_are_written_where_they_are_set() {
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
            let body = further(written(&hello().with_options(options)));
            assert_eq!(body.to_string(), expected.to_string());
        }
    }

    #[test]
    fn further_fields_join_those_that_are_there() {
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
        assert_eq!(body["text"]["format"]["name"], "place");
        assert_eq!(body["text"]["verbosity"], "low");
        assert_eq!(body["reasoning"], json!({ "effort": "low", "summary": "auto" }));
        assert_eq!(body["include"], json!(["reasoning.encrypted_content", "web_search_call.action.sources"]));
        assert_eq!(body["tools"].as_array().unwrap().len(), 2);
        assert_eq!(body["tools"][1]["type"], "web_search");
        assert_eq!(body["tool_choice"], json!({ "type": "web_search" }));
    }

    #[test]
    fn encrypted_reasoning_is_asked_for_of_models_that_reason() {
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
            let reasoning = Reasoning { is_encrypted, summary: None };
            let mut options = ModelOptions::default();
            options.reasoning_effort = effort.map(str::to_owned);
            let request = hello().with_options(options);
            let include = |dialect| sent(&dialect, model, &reasoning, &request).unwrap()["include"].take();
            let asked = if expected { json!(["reasoning.encrypted_content"]) } else { json!(null) };
            assert_eq!(include(dialect()), asked, "{model} {is_encrypted:?} {effort:?}");
            assert_eq!(include(stored()), json!(null), "{model}, stored");
        }
    }

    #[test]
    fn a_summary_is_asked_for_beside_the_effort() {
        let reasoning = Reasoning { is_encrypted: None, summary: Some("auto".into()) };
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
    fn an_answer_format_is_strict_where_it_can_be() {
        let closed =
            json!({ "type": "object", "properties": {}, "required": [], "additionalProperties": false });
        let open = json!({ "type": "object", "additionalProperties": true });
        for (schema, strict) in [(closed, true), (open, false)] {
            let format = ResponseFormat::json_schema("place", schema.clone());
            let body = written(&hello().with_response_format(format));
            let format =
                json!({ "type": "json_schema", "name": "place", "schema": schema, "strict": strict });
            assert_eq!(body["text"], json!({ "format": format }));
        }
    }

    #[test]
    fn what_the_api_does_not_have_is_refused() {
        let options = ModelOptions::default;
        let table = [
            (options().with_stop(["a"]), "the Responses API has no option `stop`"),
            (options().with_seed(1), "the Responses API has no option `seed`"),
            (options().with_frequency_penalty(0.0), "the Responses API has no option `frequency_penalty`"),
            (options().with_presence_penalty(0.0), "the Responses API has no option `presence_penalty`"),
            (options().with_temperature(f64::NAN), "the option `temperature` is NaN"),
            (options().with_top_p(f64::INFINITY), "the option `top_p` is inf"),
            (options().with_extra("input", "x"), "the further field `input` of the options is one that"),
            (options().with_extra("model", "x"), "the further field `model`"),
            (options().with_extra("store", true), "the further field `store`"),
            (options().with_extra("stream", true), "the further field `stream`"),
        ];
        for (options, expected) in table {
            let request = hello().with_options(options);
            let error = sent(&dialect(), "m", &Reasoning::default(), &request).unwrap_err();
            assert!(error.is_invalid_request() && error.to_string().starts_with(expected), "{error}");
        }
    }

    #[test]
    fn one_more_turn_costs_no_more_allocations_with_many_tools() {
        let messages = vec![Message::user("When?"), Message::assistant("Now.")];
        let (dialect, reasoning) = (dialect(), Reasoning::default());
        let counts = [0, 1, 100].map(|number| {
            let tools = (0..number).map(|number| {
                ToolDefinition::new(format!("now_{number}")).with_description("Tells the time")
            });
            let tools = ToolDefinitions::from_iter(tools);
            let write = || {
                let request = ChatRequest::borrowing(&messages).with_tools(tools.clone());
                let tools = tools::written(&tools, Form::Flat, &dialect.endpoint, None).unwrap();
                let tools = tools.as_ref().map(AsRef::as_ref);
                drop(body(&dialect, "m", &reasoning, &request, tools, true).unwrap());
            };
            write();
            allocation_counter::measure(write).count_total
        });
        assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    }
}
