//! The fields of a response that are read. All of them are optional, because some servers omit them or send values of
//! another type.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tool_http::client::{EventError, is_error_body};

use crate::json::is_error_value;
use crate::lenient::{self, MaybeObject, default_for};
use crate::quirks;
use crate::usage::WireUsage;

/// The maximum number of items: far more than any response has, but few enough to search.
pub(super) const MAX_ITEMS: usize = 10_000;

/// A whole response, or the contents of the last event of a streamed one.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireResponse<'a> {
    #[serde(borrow, deserialize_with = "lenient::string")]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lenient::string")]
    pub(super) model: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lenient::string")]
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

impl<'a> WireResponse<'a> {
    /// Parses a response that is not streamed.
    ///
    /// # Errors
    ///
    /// Fails if the JSON reports an error or is not a response.
    pub(super) fn parse(json: &'a str) -> Result<Self, EventError> {
        let response = parse_object::<Self>(json)?.unwrap_or_default();
        if response.output.is_some() || response.status.is_some() {
            return Ok(response);
        }
        let is_error = response.error.is_some_and(|error| is_error_value(error.get()));
        Err(if is_error || is_error_body(json) {
            EventError::Api(json.to_owned())
        } else {
            EventError::Malformed("it has no output".into())
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct IncompleteDetails<'a> {
    #[serde(borrow, deserialize_with = "lenient::string")]
    pub(super) reason: Option<Cow<'a, str>>,
}

/// Deserializes an array of unparsed items.
fn items<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<&'de RawValue>>, D::Error> {
    deserializer.deserialize_any(ItemsVisitor)
}

struct ItemsVisitor;

impl<'de> Visitor<'de> for ItemsVisitor {
    type Value = Option<Vec<&'de RawValue>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = array.next_element()? {
            if items.len() == MAX_ITEMS {
                return Err(A::Error::custom(format_args!("more than {MAX_ITEMS} items")));
            }
            items.push(item);
        }
        Ok(Some(items))
    }

    default_for!(null, bool, number, string, object);
}

/// An event of a streamed response, with the fields of all types, so that unknown types can be parsed, too.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireEvent<'a> {
    #[serde(rename = "type", borrow, deserialize_with = "lenient::string")]
    pub(super) kind: Option<Cow<'a, str>>,
    /// The index of the item in the response.
    #[serde(deserialize_with = "lenient::unsigned")]
    pub(super) output_index: Option<u64>,
    #[serde(borrow, deserialize_with = "lenient::string")]
    pub(super) item_id: Option<Cow<'a, str>>,
    /// The index of the part in the content of its item.
    #[serde(deserialize_with = "lenient::unsigned")]
    pub(super) content_index: Option<u64>,
    /// The index of the part in the summary of its item.
    #[serde(deserialize_with = "lenient::unsigned")]
    pub(super) summary_index: Option<u64>,
    #[serde(borrow, deserialize_with = "lenient::string")]
    pub(super) delta: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) logprobs: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) annotation: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "lenient::string")]
    pub(super) text: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lenient::string")]
    pub(super) refusal: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "quirks::deserialize_arguments")]
    pub(super) arguments: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) response: Option<&'a RawValue>,
}

impl<'a> WireEvent<'a> {
    /// Parses an event, which can be any object.
    pub(super) fn parse(json: &'a str) -> Result<Self, EventError> {
        parse_object(json)?.ok_or_else(|| {
            if is_error_body(json) {
                EventError::Api(json.to_owned())
            } else {
                EventError::Malformed("expected an object".into())
            }
        })
    }

    /// Returns the response that the event contains, or an empty one.
    pub(super) fn response(&self) -> Result<WireResponse<'a>, EventError> {
        Ok(self.response.map(|json| parse_object(json.get())).transpose()?.flatten().unwrap_or_default())
    }
}

fn parse_object<'a, T: Deserialize<'a>>(json: &'a str) -> Result<Option<T>, EventError> {
    match serde_json::from_str::<MaybeObject<T>>(json) {
        Ok(MaybeObject(object)) => Ok(object),
        Err(error) => Err(EventError::Malformed(error.to_string())),
    }
}
