//! The fields of a response that are read. All of them are optional, because some servers omit them or send values of
//! another type.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tool_http::client::{EventError, is_error_body};

use crate::json::is_error_value;
use crate::lenient::{self, MaybeObject, default_for};
use crate::quirks::{self, WireContent};
use crate::usage::WireUsage;

/// The maximum number of tool calls, in one chunk and in total: far more than any reply has.
pub(super) const MAX_CALLS: usize = 1 << 10;

/// A whole response, or a chunk of a streamed one.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Completion<'a> {
    #[serde(borrow, deserialize_with = "lenient::string")]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lenient::string")]
    pub(super) model: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "choices", deserialize_with = "first_choice")]
    pub(super) choice: Option<Choice<'a>>,
    #[serde(deserialize_with = "lenient::object")]
    pub(super) usage: Option<WireUsage>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl<'a> Completion<'a> {
    /// Parses a completion.
    ///
    /// # Errors
    ///
    /// Fails if the JSON reports an error or is not a completion.
    pub(super) fn parse(json: &'a str) -> Result<Self, EventError> {
        let MaybeObject(completion) = serde_json::from_str::<MaybeObject<Self>>(json)
            .map_err(|error| EventError::Malformed(error.to_string()))?;
        let has_error = |completion: &Self| {
            completion.error.is_some_and(|error| is_error_value(error.get()))
                || completion.choice.is_none() && is_error_body(json)
        };
        match completion {
            Some(completion) if !has_error(&completion) => Ok(completion),
            None if !is_error_body(json) => Err(EventError::Malformed("expected an object".into())),
            _ => Err(EventError::Api(json.to_owned())),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice<'a> {
    #[serde(deserialize_with = "lenient::unsigned")]
    pub(super) index: Option<u64>,
    /// The message of a whole response.
    #[serde(borrow, deserialize_with = "lenient::object")]
    pub(super) message: Option<WireMessage<'a>>,
    /// The delta of a streamed one.
    #[serde(borrow, deserialize_with = "lenient::object")]
    pub(super) delta: Option<WireMessage<'a>>,
    #[serde(borrow, deserialize_with = "lenient::string")]
    pub(super) finish_reason: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lenient::object")]
    pub(super) logprobs: Option<WireLogprobs<'a>>,
}

/// Deserializes the first of the choices. Others are not requested.
fn first_choice<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Choice<'de>>, D::Error> {
    deserializer.deserialize_any(ChoiceVisitor)
}

struct ChoiceVisitor;

impl<'de> Visitor<'de> for ChoiceVisitor {
    type Value = Option<Choice<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut first: Option<Choice<'de>> = None;
        while let Some(MaybeObject(choice)) = array.next_element::<MaybeObject<Choice<'de>>>()? {
            let is_before = |first: &Choice<'_>, choice: &Choice<'_>| matches!((first.index, choice.index), (Some(first), Some(index)) if index < first);
            if let Some(choice) = choice
                && first.as_ref().is_none_or(|first| is_before(first, &choice))
            {
                first = Some(choice);
            }
        }
        Ok(first)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Self::Value, A::Error> {
        Choice::deserialize(serde::de::value::MapAccessDeserializer::new(object)).map(Some)
    }

    default_for!(null, bool, number, string);
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireMessage<'a> {
    #[serde(borrow)]
    pub(super) content: WireContent<'a>,
    #[serde(borrow, deserialize_with = "lenient::string")]
    pub(super) refusal: Option<Cow<'a, str>>,
    /// DeepSeek's name for the reasoning.
    #[serde(borrow, deserialize_with = "lenient::string")]
    pub(super) reasoning_content: Option<Cow<'a, str>>,
    /// The name that Ollama, OpenRouter and vLLM use.
    #[serde(borrow, deserialize_with = "lenient::string")]
    pub(super) reasoning: Option<Cow<'a, str>>,
    /// OpenRouter's parts of the reasoning, with signatures.
    #[serde(borrow)]
    pub(super) reasoning_details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) annotations: Option<&'a RawValue>,
    /// Gemini's signatures.
    #[serde(borrow)]
    pub(super) extra_content: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "lenient::array::<MAX_CALLS, _, _>")]
    pub(super) tool_calls: Vec<WireCall<'a>>,
    /// The single call of old servers.
    #[serde(borrow, deserialize_with = "lenient::object")]
    pub(super) function_call: Option<WireFunction<'a>>,
}

/// A call, or a fragment of one.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireCall<'a> {
    #[serde(deserialize_with = "lenient::unsigned")]
    pub(super) index: Option<u64>,
    #[serde(borrow, deserialize_with = "lenient::string")]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lenient::object")]
    pub(super) function: Option<WireFunction<'a>>,
    /// Gemini's signatures.
    #[serde(borrow)]
    pub(super) extra_content: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireFunction<'a> {
    #[serde(borrow, deserialize_with = "lenient::string")]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "quirks::deserialize_arguments")]
    pub(super) arguments: Option<Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireLogprobs<'a> {
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
}
