//! The answer: what is read of it, and all of it optional, because some server leaves any of it out or has another type of
//! value there.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tool_core::{ChatResponse, TokenLogprob, Usage};

use super::assembler::Assembler;
use crate::lenient::{self, Object, nothing_is};
use crate::logprobs::WireLogprob;
use crate::quirks::{self, WireContent};
use crate::streaming::Problem;

/// So many calls have no reply: the list of one piece is bounded, as are they all together.
pub(super) const MOST_CALLS: usize = 1 << 10;

/// A whole answer, or a chunk of a streamed one.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Completion<'a> {
    #[serde(borrow, deserialize_with = "lenient::text")]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lenient::text")]
    pub(super) model: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "choices", deserialize_with = "choice")]
    pub(super) choice: Option<Choice<'a>>,
    #[serde(deserialize_with = "lenient::object")]
    pub(super) usage: Option<WireUsage>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl<'a> Completion<'a> {
    /// Reads it, unless it tells of an error, or is no completion.
    pub(super) fn read(json: &'a str) -> Result<Self, Problem> {
        let Object(completion) = serde_json::from_str::<Object<Self>>(json)
            .map_err(|error| Problem::Unreadable(error.to_string()))?;
        let has_error = |completion: &Self| {
            completion.error.is_some_and(|error| quirks::is_error(error.get()))
                || completion.choice.is_none() && quirks::is_error_body(json)
        };
        match completion {
            Some(completion) if !has_error(&completion) => Ok(completion),
            None if !quirks::is_error_body(json) => Err(Problem::Unreadable("expected an object".into())),
            _ => Err(Problem::Api(json.to_owned())),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice<'a> {
    #[serde(deserialize_with = "lenient::count")]
    pub(super) index: Option<u64>,
    /// Of a whole answer.
    #[serde(borrow, deserialize_with = "lenient::object")]
    pub(super) message: Option<WireMessage<'a>>,
    /// Of a streamed one.
    #[serde(borrow, deserialize_with = "lenient::object")]
    pub(super) delta: Option<WireMessage<'a>>,
    #[serde(borrow, deserialize_with = "lenient::text")]
    pub(super) finish_reason: Option<Cow<'a, str>>,
    #[serde(borrow)]
    logprobs: Option<&'a RawValue>,
}

impl Choice<'_> {
    /// How likely the tokens were. They are beside what matters: what is not of the API is left out.
    pub(super) fn logprobs(&self) -> Vec<TokenLogprob> {
        let read = self.logprobs.and_then(|json| serde_json::from_str(json.get()).ok());
        let tokens = read.and_then(|read: WireLogprobs<'_>| read.content).unwrap_or_default();
        tokens.into_iter().map(Into::into).collect()
    }
}

/// The first of the choices: the others are not asked for.
fn choice<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Choice<'de>>, D::Error> {
    deserializer.deserialize_any(ChoiceVisitor)
}

struct ChoiceVisitor;

impl<'de> Visitor<'de> for ChoiceVisitor {
    type Value = Option<Choice<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut first: Option<Choice<'de>> = None;
        while let Some(Object(choice)) = list.next_element::<Object<Choice<'de>>>()? {
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

    nothing_is!(null, bool, number, text);
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireMessage<'a> {
    #[serde(borrow)]
    pub(super) content: WireContent<'a>,
    #[serde(borrow, deserialize_with = "lenient::text")]
    pub(super) refusal: Option<Cow<'a, str>>,
    /// DeepSeek's name for it.
    #[serde(borrow, deserialize_with = "lenient::text")]
    pub(super) reasoning_content: Option<Cow<'a, str>>,
    /// The name that Ollama, OpenRouter and vLLM give it.
    #[serde(borrow, deserialize_with = "lenient::text")]
    pub(super) reasoning: Option<Cow<'a, str>>,
    /// OpenRouter's pieces of it, with signatures.
    #[serde(borrow)]
    pub(super) reasoning_details: Option<&'a RawValue>,
    /// Gemini's signatures.
    #[serde(borrow)]
    pub(super) extra_content: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "lenient::list::<MOST_CALLS, _, _>")]
    pub(super) tool_calls: Vec<WireCall<'a>>,
    /// The one call of old servers.
    #[serde(borrow, deserialize_with = "lenient::object")]
    pub(super) function_call: Option<WireFunction<'a>>,
}

/// A call, or a fragment of one.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireCall<'a> {
    #[serde(deserialize_with = "lenient::count")]
    pub(super) index: Option<u64>,
    #[serde(borrow, deserialize_with = "lenient::text")]
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
    #[serde(borrow, deserialize_with = "lenient::text")]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "quirks::arguments")]
    pub(super) arguments: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct WireLogprobs<'a> {
    #[serde(borrow)]
    content: Option<Vec<WireLogprob<'a>>>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireUsage {
    #[serde(deserialize_with = "lenient::count")]
    prompt_tokens: Option<u64>,
    #[serde(deserialize_with = "lenient::count")]
    completion_tokens: Option<u64>,
    #[serde(deserialize_with = "lenient::count")]
    total_tokens: Option<u64>,
    #[serde(deserialize_with = "lenient::object")]
    prompt_tokens_details: Option<PromptDetails>,
    #[serde(deserialize_with = "lenient::object")]
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    #[serde(deserialize_with = "lenient::count")]
    cached_tokens: Option<u64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct CompletionDetails {
    #[serde(deserialize_with = "lenient::count")]
    reasoning_tokens: Option<u64>,
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Self {
        let mut usage = Self::new(wire.prompt_tokens.unwrap_or(0), wire.completion_tokens.unwrap_or(0));
        usage.total_tokens = wire.total_tokens.unwrap_or(usage.total_tokens);
        usage.cached_tokens = wire.prompt_tokens_details.and_then(|details| details.cached_tokens);
        usage.reasoning_tokens = wire.completion_tokens_details.and_then(|details| details.reasoning_tokens);
        usage
    }
}

/// Reads a whole answer.
pub(super) fn read(json: &str, provider: &str) -> Result<ChatResponse, Problem> {
    let mut assembler = Assembler::new(provider);
    assembler.add_json(json, &mut |_| {})?;
    if assembler.has_begun() {
        return Ok(assembler.into_response());
    }
    // Anything may be an object without choices.
    let is_of_the_api = json.contains("\"choices\"");
    Err(if is_of_the_api { Problem::Empty } else { Problem::Unreadable("it has no choices".into()) })
}
