//! The answer: what is read of it, and all of it optional, because some server leaves any of it out.

use serde::Deserialize;
use serde_json::value::RawValue;
use tool_core::{ChatResponse, Usage};

use super::assembler::Assembler;
use super::item::text;
use crate::quirks;

/// A whole answer, or what the last event of a streamed one tells.
#[derive(Default, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct WireResponse<'a> {
    pub(super) id: Option<String>,
    pub(super) model: Option<String>,
    pub(super) status: Option<String>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    pub(super) incomplete_details: Option<IncompleteDetails>,
    #[serde(borrow)]
    pub(super) output: Option<Vec<&'a RawValue>>,
    pub(super) usage: Option<WireUsage>,
}

#[derive(Deserialize)]
pub(super) struct IncompleteDetails {
    pub(super) reason: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
pub(super) struct WireUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    total_tokens: Option<u64>,
    input_tokens_details: Option<InputDetails>,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Clone, Copy, Deserialize)]
struct InputDetails {
    cached_tokens: Option<u64>,
}

#[derive(Clone, Copy, Deserialize)]
struct OutputDetails {
    reasoning_tokens: Option<u64>,
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Self {
        let mut usage = Self::new(wire.input_tokens.unwrap_or(0), wire.output_tokens.unwrap_or(0));
        usage.total_tokens = wire.total_tokens.unwrap_or(usage.total_tokens);
        usage.cached_tokens = wire.input_tokens_details.and_then(|details| details.cached_tokens);
        usage.reasoning_tokens = wire.output_tokens_details.and_then(|details| details.reasoning_tokens);
        usage
    }
}

/// An event of a streamed answer. Each field as it is, so that an event of an unknown kind is one all the same.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct Event<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    output_index: Option<&'a RawValue>,
    #[serde(borrow)]
    item_id: Option<&'a RawValue>,
    #[serde(borrow)]
    content_index: Option<&'a RawValue>,
    #[serde(borrow)]
    summary_index: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) delta: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) logprobs: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) text: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) refusal: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) response: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

impl<'a> Event<'a> {
    /// What the event tells of; nothing if it does not say.
    pub(super) fn kind(&self) -> &'a str {
        self.kind.map_or("", |kind| kind.get().trim_matches('"'))
    }

    /// The place of the item among those of the response.
    pub(super) fn output_index(&self) -> Option<u64> {
        number(self.output_index)
    }

    /// The item's id.
    pub(super) fn item_id(&self) -> Option<String> {
        self.item_id.and_then(text)
    }

    /// The place of the part in the content of its item.
    pub(super) fn content_index(&self) -> u64 {
        number(self.content_index).unwrap_or(0)
    }

    /// The place of the part in the summary of its item.
    pub(super) fn summary_index(&self) -> u64 {
        number(self.summary_index).unwrap_or(0)
    }
}

fn number(json: Option<&RawValue>) -> Option<u64> {
    json?.get().parse().ok()
}

/// Why an answer gives no response.
#[derive(Debug)]
pub(super) enum Problem {
    /// It tells of an error, some servers do so under status 200: the JSON that does.
    Api(String),
    /// It is not one of the API.
    Unreadable(String),
}

impl Problem {
    /// An error of which the API says no more than that.
    pub(super) fn untold(message: &str) -> Self {
        Self::Api(serde_json::json!({ "message": message }).to_string())
    }
}

/// Reads a whole answer of this provider.
pub(super) fn read(answer: &str, provider: &str) -> Result<ChatResponse, Problem> {
    let response: WireResponse<'_> =
        serde_json::from_str(answer).map_err(|error| Problem::Unreadable(error.to_string()))?;
    if response.output.is_none() && response.status.is_none() {
        let is_error = response.error.is_some() || quirks::api_error(answer).is_some();
        return Err(if is_error {
            Problem::Api(answer.to_owned())
        } else {
            Problem::Unreadable("it has no output".into())
        });
    }
    let mut assembler = Assembler::default();
    assembler.end("", response, &mut |_| {})?;
    Ok(assembler.into_response(provider))
}
