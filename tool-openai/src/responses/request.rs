//! The request, written straight from the core types.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tool_core::{AnswerFormat, ChatRequest, ModelOptions, ToolChoice, ToolDefinition, ToolDefinitions};

use super::Settings;
use super::input::WrittenInput;
use crate::Error;
use crate::fields::Fields;
use crate::json::write_text;

/// The tools of a set, as they stand in every request of it.
struct WireTools(Result<Box<RawValue>, String>);

/// Fields that no further field may set, and where they are set.
const SET_ELSEWHERE: [(&str, &str); 4] = [
    ("input", "the messages of the request"),
    ("model", "the option `model`"),
    ("store", "`Responses::with_store`"),
    ("stream", "streaming the request"),
];

/// The body of a request.
///
/// What stays the same from turn to turn stands first and the input, which only grows, behind it: so a turn's body begins
/// with the bytes of the one before, and the provider's cache of prompts hits. Only the choice of tools, which a run
/// changes once a tool was called, stands behind the input.
///
/// # Errors
///
/// An option is no number that JSON can say or none that the API has, or the messages hold what it has no word for.
pub(super) fn body(
    model: &str,
    settings: &Settings,
    request: &ChatRequest<'_>,
    is_streamed: bool,
) -> Result<Vec<u8>, Error> {
    refuse_what_there_is_not(request.options())?;
    let tools = wire_tools(request.tools());
    let tools = match tools.as_deref() {
        None => None,
        Some(WireTools(Ok(tools))) => Some(&**tools),
        Some(WireTools(Err(why))) => {
            return Err(Error::config(format!("the tools cannot be written as JSON: {why}")));
        }
    };
    request.cached(|written: &mut WrittenInput| {
        let input = written.with_new(request.messages(), settings.is_stored)?;
        write(model, settings, request, is_streamed, tools, input)
    })
}

fn write(
    model: &str,
    settings: &Settings,
    request: &ChatRequest<'_>,
    is_streamed: bool,
    tools: Option<&RawValue>,
    input: &[u8],
) -> Result<Vec<u8>, Error> {
    let options = request.options();
    let model = options.model.as_deref().unwrap_or(model);
    let mut json = Vec::with_capacity(1024 + tools.map_or(0, |tools| tools.get().len()) + input.len());
    json.extend_from_slice(br#"{"model":"#);
    write_text(&mut json, model);
    if is_streamed {
        json.extend_from_slice(br#","stream":true"#);
    }
    // Left out, it means `true`.
    json.extend_from_slice(if settings.is_stored { br#","store":true"# } else { br#","store":false"# });
    let mut fields = Fields::behind(json, &options.extra);
    let included = included(model, settings, options);
    fields.write_set("include", Some(&included).filter(|included| !included.is_empty()))?;
    // The API refuses an empty list, and words of tools without tools.
    fields.write_set("tools", tools.as_ref())?;
    let has_tools = tools.is_some() || fields.has_further("tools");
    fields.write_set("parallel_tool_calls", request.parallel_tool_calls().filter(|_| has_tools).as_ref())?;
    write_options(&mut fields, options)?;
    let reasoning = Reasoning {
        effort: options.reasoning_effort.as_deref(),
        summary: settings.reasoning_summary.as_deref(),
    };
    fields.write_set("reasoning", Some(&reasoning).filter(|reasoning| !reasoning.is_empty()))?;
    fields.write_set("text", request.answer_format().map(Text::of).as_ref())?;
    let has_choice = has_tools && !fields.has_further("tool_choice");
    let mut json = fields.with_further()?;
    json.extend_from_slice(br#","input":"#);
    json.extend_from_slice(input);
    json.push(b']');
    if has_choice {
        write_choice(&mut json, request.tool_choice());
    }
    json.push(b'}');
    Ok(json)
}

/// What is unset is not written: some servers refuse words that they do not know.
fn write_options(fields: &mut Fields<'_>, options: &ModelOptions) -> Result<(), Error> {
    fields.write_set("temperature", options.temperature.as_ref())?;
    fields.write_set("top_p", options.top_p.as_ref())?;
    fields.write_set("max_output_tokens", options.max_output_tokens.as_ref())?;
    fields.write_set("top_logprobs", options.top_logprobs.as_ref())?;
    fields.write_set("service_tier", options.service_tier.as_ref())?;
    fields.write_set("user", options.user.as_ref())?;
    fields.write_set("metadata", Some(&options.metadata).filter(|metadata| !metadata.is_empty()))
}

fn write_choice(json: &mut Vec<u8>, choice: &ToolChoice) {
    match choice {
        ToolChoice::None => json.extend_from_slice(br#","tool_choice":"none""#),
        ToolChoice::Required => json.extend_from_slice(br#","tool_choice":"required""#),
        ToolChoice::Tool(name) => {
            json.extend_from_slice(br#","tool_choice":{"type":"function","name":"#);
            write_text(json, name);
            json.push(b'}');
        }
        // What the API does when it is told nothing.
        _ => {}
    }
}

/// What is asked for beyond what the API tells by itself.
fn included(model: &str, settings: &Settings, options: &ModelOptions) -> Vec<&'static str> {
    let has_encrypted_reasoning = settings
        .has_encrypted_reasoning
        .unwrap_or_else(|| options.reasoning_effort.is_some() || reasons(model));
    let mut included = Vec::new();
    // What is stored is there to be referred to.
    if has_encrypted_reasoning && !settings.is_stored {
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
        return Err(Error::config(format!(
            "the Responses API has no option `{name}`; leave it out, or ask through Chat Completions with `OpenAi::chat_model`"
        )));
    }
    for (name, number) in [("temperature", options.temperature), ("top_p", options.top_p)] {
        if let Some(number) = number.filter(|number| !number.is_finite()) {
            return Err(Error::config(format!("the option `{name}` is {number}; give a finite number")));
        }
    }
    match SET_ELSEWHERE.iter().find(|(name, _)| options.extra.contains_key(*name)) {
        Some((name, place)) => Err(Error::config(format!(
            "`{name}` cannot be a further field of the request: it is set by {place}"
        ))),
        None => Ok(()),
    }
}

fn wire_tools(definitions: &ToolDefinitions) -> Option<Arc<WireTools>> {
    let encode = |list: &[ToolDefinition]| {
        let tools: Vec<_> = list.iter().map(Tool::of).collect();
        WireTools(serde_json::value::to_raw_value(&tools).map_err(|error| error.to_string()))
    };
    (!definitions.is_empty()).then(|| definitions.encoded(encode))
}

/// The API wants `parameters` and `strict` of every tool.
#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    parameters: &'a Value,
    strict: bool,
}

impl<'a> Tool<'a> {
    fn of(definition: &'a ToolDefinition) -> Self {
        Self {
            r#type: "function",
            name: definition.name(),
            description: definition.description(),
            parameters: definition.parameters(),
            strict: definition.is_strict(),
        }
    }
}

#[derive(Serialize)]
struct Reasoning<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'a str>,
}

impl Reasoning<'_> {
    fn is_empty(&self) -> bool {
        self.effort.is_none() && self.summary.is_none()
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
    fn of(format: &'a AnswerFormat) -> Self {
        let (name, schema, strict) = (format.name(), format.schema(), format.is_strict());
        Self { format: JsonSchema { r#type: "json_schema", name, schema, strict } }
    }
}
