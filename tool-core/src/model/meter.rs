//! How the attempts of a request are counted.
//!
//! A request carries what counts it, and is counted where it is sent (`ChatRequest::send_to`), because layers, fallbacks and providers can
//! each send it several times. A model that repeats requests by itself reports each (`ChatRequest::repeat`).

use futures_util::future::BoxFuture;

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

/// The worst case of an attempt.
#[derive(Clone, Copy)]
pub(crate) struct Attempt<'a> {
    pub(crate) model: &'a str,
    /// As many input tokens as there are at most.
    pub(crate) input_tokens: u64,
    /// The largest number of output tokens, if it is known.
    pub(crate) output_tokens: Option<u64>,
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

    /// Stores what its provider knows about a model.
    fn remember(&self, model: &str, info: ModelInfo);

    /// Reserves the worst case of an attempt.
    fn begin<'a>(&'a self, attempt: Attempt<'a>) -> BoxFuture<'a, Result<Begun, ModelError>>;

    /// Reserves another request of an attempt.
    fn repeat(&self, id: usize, earlier: EarlierAttempt) -> BoxFuture<'_, Result<(), ModelError>>;

    /// Replaces the reservation of an attempt by what it cost. An attempt without an end keeps its reservation.
    fn end(&self, id: usize, usage: Result<Option<Usage>, EarlierAttempt>) -> BoxFuture<'_, ()>;
}
