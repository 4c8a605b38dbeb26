//! The answer: what is read of it, and all of it optional, because some server leaves any of it out or has another type of
//! value there.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tool_core::{ChatResponse, Usage};

use super::assembler::Assembler;
use crate::lenient::{self, Object, nothing_is};
use crate::quirks;
use crate::streaming::Problem;

/// Beyond any number of items that a model gives: to look for one among them is not to take long.
pub(super) const MOST_ITEMS: usize = 10_000;

/// A whole answer, or what the last event of a streamed one tells.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireResponse<'a> {
    #[serde(borrow, deserialize_with = "lenient::text")]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lenient::text")]
    pub(super) model: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lenient::text")]
    pub(super) status: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "lenient::object")]
    pub(super) incomplete_details: Option<IncompleteDetails<'a>>,
    #[serde(borrow, deserialize_with = "items")]
    pub(super) output: Option<Vec<&'a RawValue>>,
    #[serde(deserialize_with = "lenient::object")]
    pub(super) usage: Option<WireUsage>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct IncompleteDetails<'a> {
    #[serde(borrow, deserialize_with = "lenient::text")]
    pub(super) reason: Option<Cow<'a, str>>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireUsage {
    #[serde(deserialize_with = "lenient::count")]
    input_tokens: Option<u64>,
    #[serde(deserialize_with = "lenient::count")]
    output_tokens: Option<u64>,
    #[serde(deserialize_with = "lenient::count")]
    total_tokens: Option<u64>,
    #[serde(deserialize_with = "lenient::object")]
    input_tokens_details: Option<InputDetails>,
    #[serde(deserialize_with = "lenient::object")]
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct InputDetails {
    #[serde(deserialize_with = "lenient::count")]
    cached_tokens: Option<u64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    #[serde(deserialize_with = "lenient::count")]
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

/// Items, each as it is.
fn items<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<&'de RawValue>>, D::Error> {
    deserializer.deserialize_any(ItemsVisitor)
}

struct ItemsVisitor;

impl<'de> Visitor<'de> for ItemsVisitor {
    type Value = Option<Vec<&'de RawValue>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            if items.len() == MOST_ITEMS {
                return Err(A::Error::custom(format_args!("it has more than {MOST_ITEMS} items")));
            }
            items.push(item);
        }
        Ok(Some(items))
    }

    nothing_is!(null, bool, number, text, object);
}

/// An event of a streamed answer: any kind of it, so that one of an unknown kind is one all the same.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireEvent<'a> {
    #[serde(rename = "type", borrow, deserialize_with = "lenient::text")]
    pub(super) kind: Option<Cow<'a, str>>,
    /// The place of the item among those of the response.
    #[serde(deserialize_with = "lenient::count")]
    pub(super) output_index: Option<u64>,
    #[serde(borrow, deserialize_with = "lenient::text")]
    pub(super) item_id: Option<Cow<'a, str>>,
    /// The place of the part in the content of its item.
    #[serde(deserialize_with = "lenient::count")]
    pub(super) content_index: Option<u64>,
    /// The place of the part in the summary of its item.
    #[serde(deserialize_with = "lenient::count")]
    pub(super) summary_index: Option<u64>,
    #[serde(borrow, deserialize_with = "lenient::text")]
    pub(super) delta: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) logprobs: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "lenient::text")]
    pub(super) text: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lenient::text")]
    pub(super) refusal: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "quirks::arguments")]
    pub(super) arguments: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) response: Option<&'a RawValue>,
}

impl<'a> WireEvent<'a> {
    /// Reads an event, whatever object it is.
    pub(super) fn read(json: &'a str) -> Result<Self, Problem> {
        read_object(json)?.ok_or_else(|| match quirks::is_error_body(json) {
            true => Problem::Api(json.to_owned()),
            false => Problem::Unreadable("expected an object".into()),
        })
    }

    /// The response that the event is about, as far as it says.
    pub(super) fn response(&self) -> Result<WireResponse<'a>, Problem> {
        Ok(self.response.map(|json| read_object(json.get())).transpose()?.flatten().unwrap_or_default())
    }
}

fn read_object<'a, T: Deserialize<'a>>(json: &'a str) -> Result<Option<T>, Problem> {
    match serde_json::from_str::<Object<T>>(json) {
        Ok(Object(read)) => Ok(read),
        Err(error) => Err(Problem::Unreadable(error.to_string())),
    }
}

/// Reads a whole answer.
pub(super) fn read(json: &str, provider: &str) -> Result<ChatResponse, Problem> {
    let json = &*quirks::with_whole_characters(json);
    let response = read_object::<WireResponse<'_>>(json)?.unwrap_or_default();
    if response.output.is_none() && response.status.is_none() {
        let is_error = response.error.is_some_and(|error| quirks::is_error(error.get()));
        return Err(match is_error || quirks::is_error_body(json) {
            true => Problem::Api(json.to_owned()),
            false => Problem::Unreadable("it has no output".into()),
        });
    }
    let mut assembler = Assembler::new(provider);
    assembler.end(None, response, &mut |_| {})?;
    Ok(assembler.into_response())
}
