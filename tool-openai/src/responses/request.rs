//! The request, written straight from the core types.

use serde::Serialize;
use serde_json::Value;
use tool_core::{AnswerFormat, ChatRequest, ModelOptions, ToolChoice};

use super::input::WrittenInput;
use super::{Dialect, Reasoning};
use crate::fields::Fields;
use crate::json::write_text;
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
) -> Result<Vec<u8>, Error> {
    let (options, endpoint) = (request.options(), &*dialect.endpoint);
    refuse_what_there_is_not(options)?;
    request.cached(|written: &mut WrittenInput| {
        let input = written.with_new(request.messages(), dialect)?;
        let mut json = Vec::with_capacity(1024 + tools.map_or(0, str::len) + input.len());
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
        let format = request.answer_format().filter(|_| endpoint.json_schema);
        fields.write_set("text", format.map(|format| Text::of(format, endpoint)))?;
        let has_choice = has_tools && !fields.has_further("tool_choice");
        let mut json = fields.with_further()?;
        json.extend_from_slice(br#","input":"#);
        json.extend_from_slice(input);
        json.push(b']');
        if has_choice {
            write_choice(&mut json, request.tool_choice(), endpoint);
        }
        json.push(b'}');
        Ok(json)
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
    fn of(format: &'a AnswerFormat, endpoint: &Endpoint) -> Self {
        let strict = format.is_strict() && endpoint.strict;
        let (name, schema) = (format.name(), format.schema());
        Self { format: JsonSchema { r#type: "json_schema", name, schema, strict } }
    }
}
