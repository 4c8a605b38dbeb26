//! Layers: one boundary for questions, model requests, calls, outputs and answers, which nothing bypasses.

mod verdict;
mod account;
mod place;
mod call_entry;
mod layer_trait;
mod review;
mod closure;
pub mod guard;
pub mod rewrite;

mod audit;
mod redact;
#[cfg(feature = "rate-limit")]
mod rate_limit;

pub use self::account::Account;
pub(crate) use self::account::Accounts;
pub use self::audit::{Audit, AuditEntry, AuditRecord};
pub use self::call_entry::CallEntry;
pub use self::closure::{ClosureLayer, IntoVerdict, QuestionGuard};
pub use self::layer_trait::{Deltas, Layer, LayerError, LayerFuture, Next, Phase};
pub(crate) use self::layer_trait::{LayerPanicked, Route, RunEnded};
pub use self::place::Place;
#[cfg(feature = "rate-limit")]
pub use self::rate_limit::RateLimit;
pub use self::redact::Redact;
pub(crate) use self::review::{LayerFailure, Review, Ruling, Seat};
pub use self::verdict::{AnswerVerdict, CallVerdict, OutputVerdict, QuestionVerdict, TextVerdict};
