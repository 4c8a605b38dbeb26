//! The fields of a response that are read. All of them are optional, because some servers omit them or send values of
//! another type.

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess};
use serde_json::value::RawValue;
use tool_http::client::{EventError, is_error_body};

use crate::json::is_error_value;
use crate::lenient::{self, Count, Lenient, List, Object, Text};
use crate::quirks::{Arguments, WireContent};
use crate::usage::WireUsage;

/// A whole response, or a chunk of a streamed one.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Completion<'a> {
    pub(super) id: Text<'a>,
    pub(super) model: Text<'a>,
    pub(super) choices: FirstChoice<'a>,
    pub(super) usage: Object<WireUsage>,
    error: Option<&'a RawValue>,
}

impl<'a> Completion<'a> {
    /// Parses a completion.
    ///
    /// # Errors
    ///
    /// Fails if the JSON reports an error or is not a completion.
    pub(super) fn parse(json: &'a str) -> Result<Self, EventError> {
        let Object(completion) = serde_json::from_str::<Object<Self>>(json)
            .map_err(|error| EventError::Malformed(error.to_string()))?;
        let has_error = |completion: &Self| {
            completion.error.is_some_and(|error| is_error_value(error.get()))
                || completion.choices.0.is_none() && is_error_body(json)
        };
        match completion {
            Some(completion) if !has_error(&completion) => Ok(completion),
            None if !is_error_body(json) => Err(EventError::Malformed("expected an object".into())),
            _ => Err(EventError::Api(json.to_owned())),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Choice<'a> {
    pub(super) index: Count,
    /// The message of a whole response.
    pub(super) message: Object<WireMessage<'a>>,
    /// The delta of a streamed one.
    pub(super) delta: Object<WireMessage<'a>>,
    pub(super) finish_reason: Text<'a>,
    pub(super) logprobs: Object<WireLogprobs<'a>>,
}

/// The choice with the lowest index, or the first one without. Others are not requested.
#[derive(Default)]
pub(super) struct FirstChoice<'a>(pub(super) Option<Choice<'a>>);

impl<'de: 'a, 'a> Lenient<'de> for FirstChoice<'a> {
    fn from_array<A: SeqAccess<'de>>(mut array: A) -> Result<Self, A::Error> {
        let mut first: Option<Choice<'a>> = None;
        let is_before = |first: &Choice<'_>, choice: &Choice<'_>| {
            first.index.0.zip(choice.index.0).is_some_and(|(first, index)| index < first)
        };
        while let Some(Object(choice)) = array.next_element::<Object<Choice<'a>>>()? {
            if let Some(choice) = choice
                && first.as_ref().is_none_or(|first| is_before(first, &choice))
            {
                first = Some(choice);
            }
        }
        Ok(Self(first))
    }

    fn from_object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        Ok(Self(Object::from_object(object)?.0))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for FirstChoice<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        lenient::deserialize(deserializer)
    }
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct WireMessage<'a> {
    pub(super) content: WireContent<'a>,
    pub(super) refusal: Text<'a>,
    /// DeepSeek's name for the reasoning.
    pub(super) reasoning_content: Text<'a>,
    /// The name that Ollama, OpenRouter and vLLM use.
    pub(super) reasoning: Text<'a>,
    /// OpenRouter's parts of the reasoning, with signatures.
    pub(super) reasoning_details: Option<&'a RawValue>,
    pub(super) annotations: Option<&'a RawValue>,
    /// Gemini's signatures.
    pub(super) extra_content: Option<&'a RawValue>,
    pub(super) tool_calls: List<WireCall<'a>>,
    /// The single call of old servers.
    pub(super) function_call: Object<WireFunction<'a>>,
}

/// A call, or a fragment of one.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct WireCall<'a> {
    pub(super) index: Count,
    pub(super) id: Text<'a>,
    pub(super) function: Object<WireFunction<'a>>,
    /// Gemini's signatures.
    pub(super) extra_content: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct WireFunction<'a> {
    pub(super) name: Text<'a>,
    pub(super) arguments: Arguments<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct WireLogprobs<'a> {
    pub(super) content: Option<&'a RawValue>,
}
