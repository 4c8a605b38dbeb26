//! Layers: one boundary for questions, model requests, calls, outputs and answers, which nothing bypasses.

mod verdict;
pub(crate) mod usage_reporter;
mod context;
mod recorded_call;
mod layer_trait;
mod review;
pub(crate) mod closure;
pub mod guard;
pub mod rewrite;

pub(crate) mod audit;
mod redact;
#[cfg(feature = "rate-limit")]
mod rate_limit;

pub use self::audit::Audit;
pub use self::context::LayerContext;
pub use self::layer_trait::{Layer, LayerError, LayerFuture, LayerPhase, NextLayer};
pub(crate) use self::layer_trait::{LayerPanicked, Route, RunEnded};
#[cfg(feature = "rate-limit")]
pub use self::rate_limit::RateLimit;
pub use self::recorded_call::RecordedCall;
pub use self::redact::Redact;
pub(crate) use self::review::{LayerFailure, Review, Ruling, Seat};
pub(crate) use self::usage_reporter::Accounts;
pub(crate) use self::usage_reporter::UsageReporter;
pub use self::verdict::{AnswerVerdict, CallVerdict, OutputVerdict, QuestionVerdict, TextVerdict};
