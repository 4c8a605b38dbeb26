//! The fields of a response that are read. All of them are optional, because some servers omit them or send values of
//! another type.

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess};
use serde_json::value::RawValue;
use tool_http::client::{EventError, is_error_body};

use crate::json::is_error_value;
use crate::lenient::{self, Count, Lenient, Object, Text};
use crate::quirks::Arguments;
use crate::usage::WireUsage;

/// The maximum number of items: far more than any response has, but few enough to search.
pub(super) const MAX_ITEMS: usize = 10_000;

/// A whole response, or the contents of the last event of a streamed one.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct WireResponse<'a> {
    pub(super) id: Text<'a>,
    pub(super) model: Text<'a>,
    pub(super) status: Text<'a>,
    pub(super) error: Option<&'a RawValue>,
    pub(super) incomplete_details: Object<IncompleteDetails<'a>>,
    pub(super) output: Items<'a>,
    pub(super) usage: Object<WireUsage>,
}

impl<'a> WireResponse<'a> {
    /// Parses a response that is not streamed.
    ///
    /// # Errors
    ///
    /// Fails if the JSON reports an error or is not a response.
    pub(super) fn parse(json: &'a str) -> Result<Self, EventError> {
        let response = parse_object::<Self>(json)?.unwrap_or_default();
        if response.output.0.is_some() || response.status.0.is_some() {
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
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct IncompleteDetails<'a> {
    pub(super) reason: Text<'a>,
}

/// An array of unparsed items.
#[derive(Default)]
pub(super) struct Items<'a>(pub(super) Option<Vec<&'a RawValue>>);

impl<'de: 'a, 'a> Lenient<'de> for Items<'a> {
    fn from_array<A: SeqAccess<'de>>(mut array: A) -> Result<Self, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = array.next_element()? {
            if items.len() == MAX_ITEMS {
                return Err(A::Error::custom(format_args!("more than {MAX_ITEMS} items")));
            }
            items.push(item);
        }
        Ok(Self(Some(items)))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Items<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        lenient::deserialize(deserializer)
    }
}

/// An event of a streamed response, with the fields of all types, so that unknown types can be parsed, too.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct WireEvent<'a> {
    #[serde(rename = "type")]
    pub(super) kind: Text<'a>,
    /// The index of the item in the response.
    pub(super) output_index: Count,
    pub(super) item_id: Text<'a>,
    /// The index of the part in the content of its item.
    pub(super) content_index: Count,
    /// The index of the part in the summary of its item.
    pub(super) summary_index: Count,
    pub(super) delta: Text<'a>,
    pub(super) logprobs: Option<&'a RawValue>,
    pub(super) annotation: Option<&'a RawValue>,
    pub(super) text: Text<'a>,
    pub(super) refusal: Text<'a>,
    pub(super) arguments: Arguments<'a>,
    pub(super) item: Option<&'a RawValue>,
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
    match serde_json::from_str::<Object<T>>(json) {
        Ok(Object(object)) => Ok(object),
        Err(error) => Err(EventError::Malformed(error.to_string())),
    }
}
