//! How the attempts of a request are counted.
//!
//! A request carries what counts it, and is counted where it is sent (`ChatRequest::send_to`), because layers, fallbacks and providers can
//! each send it several times. A model that repeats requests by itself reports each (`ChatRequest::repeat`).

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::model::{ModelError, ModelInfo, Usage};

/// What an earlier attempt of a request may have cost, see [`ChatRequest::repeat`](crate::model::ChatRequest::repeat).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EarlierAttempt {
    /// It certainly cost nothing: it did not reach the provider, or was rejected.
    Unbilled,
    /// It may have cost something that the provider did not report. It counts as the worst case.
    Unknown,
    /// It was answered, but the answer cannot be used, and the next request contains it. It counts as the worst case.
    Unusable,
    /// It was answered in part, which the next request contains, and its usage will be included in the response's.
    Continued,
}

impl EarlierAttempt {
    /// Returns what an attempt with this error may have cost.
    #[must_use]
    pub fn from_unbilled(is_unbilled: bool) -> Self {
        if is_unbilled { Self::Unbilled } else { Self::Unknown }
    }
}

/// The number of tokens of a text, in millionths of a token per byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct TokensPerText(u32);

impl TokensPerText {
    /// What is assumed before a request has shown it: two bytes per token. Most texts have three or four; some models read each digit as
    /// a token.
    const ASSUMED: Self = Self(500_000);

    /// Returns what a request shows, of which a text is the larger part. A byte of text is at most one token, so one with more tokens has
    /// read something else.
    pub(crate) fn measure(tokens: u64, bytes: u64) -> Option<Self> {
        let millionths = (u128::from(tokens) * 1_000_000).div_ceil(u128::from(bytes.max(1)));
        u32::try_from(millionths).ok().filter(|millionths| *millionths <= 1_000_000).map(Self)
    }

    /// Estimates the tokens of a text: a quarter more than what was seen.
    pub(crate) fn estimate(seen: Option<Self>, bytes: u64) -> u64 {
        let millionths = seen.map_or(Self::ASSUMED.0, |Self(seen)| seen + seen / 4);
        let tokens = (u128::from(bytes) * u128::from(millionths)).div_ceil(1_000_000);
        u64::try_from(tokens).unwrap_or(u64::MAX).min(bytes)
    }
}

/// The worst case of an attempt.
#[derive(Clone, Copy)]
pub(crate) struct Attempt<'a> {
    pub(crate) model: &'a str,
    /// As many input tokens as there are at most.
    pub(crate) input_tokens: u64,
    /// The largest number of output tokens, if it is known.
    pub(crate) output_tokens: Option<u64>,
    /// The bytes of text that the input consists of, if it consists of text.
    pub(crate) text_bytes: Option<u64>,
    /// The number of input tokens by which a budget admits the attempt if it does not have as many as there are at most.
    pub(crate) admitted_by: Option<u64>,
}

/// An attempt whose worst case is reserved.
pub(crate) struct Begun {
    pub(crate) id: usize,
    /// The number of output tokens to which the response must be limited.
    pub(crate) max_output_tokens: Option<u32>,
}

/// Counts the attempts of one request. There can be several at the same time.
pub(crate) trait Meter: Send + Sync {
    /// Returns what is known about the model with this name.
    fn known(&self, model: &str) -> ModelInfo;

    /// Returns `true` if something limits what attempts may cost.
    fn is_limited(&self) -> bool;

    /// Returns the most tokens that requests of the run have used for a text, if they have shown it.
    fn tokens_per_text(&self) -> Option<TokensPerText>;

    /// Stores what its provider knows about a model.
    fn remember(&self, model: &str, info: ModelInfo);

    /// Reserves the worst case of an attempt. One with a number of tokens by which it is admitted waits while others have reserved all that is
    /// left of a budget.
    fn begin<'a>(&'a self, attempt: Attempt<'a>) -> BoxFuture<'a, Result<Begun, ModelError>>;

    /// Reserves another request of an attempt.
    fn repeat(&self, id: usize, earlier: EarlierAttempt) -> BoxFuture<'_, Result<(), ModelError>>;

    /// Replaces the reservation of an attempt by what it cost. An attempt without an end keeps its reservation.
    fn end(&self, id: usize, usage: Result<Option<Usage>, EarlierAttempt>) -> BoxFuture<'_, ()>;
}
