//! What stands in signatures: bounds of parameters, what methods return, records, and errors of single types.
//!
//! A program meets these names in the documentation and in messages of the compiler. It writes one where it is generic over a bound, keeps a
//! value in a field of its own, or matches an error or a kind.

pub use crate::agent::decide::DecisionReceipt;
pub use crate::agent::recover::Recovery;
pub use crate::agent::tool_search::IntoToolNames;
pub use crate::arguments::repair::Repair;
pub use crate::layer::audit::{AuditEvent, AuditRecord};
pub use crate::layer::closure::{ClosureLayer, IntoVerdict, QuestionGuard};
pub use crate::layer::usage_reporter::UsageReporter;
pub use crate::memory::budget::{IntoKeyedBudget, KeyedBudget};
pub use crate::memory::chat_memory::OpenConversation;
pub use crate::memory::stored_runs::StoredRun;
pub use crate::model::cost::CurrencyError;
pub use crate::model::prices::PricesError;
#[cfg(feature = "prompted")]
pub use crate::prompted::error::{PromptedToolsError, PromptedToolsErrorKind};
pub use crate::run::cache_use::CacheUse;
pub use crate::run::compaction::CompactionRecord;
pub use crate::run::handoff::Handoff;
pub use crate::run::resolve_error::{ResolveError, ResolveErrorKind};
pub use crate::run::step_error::{StepError, StepErrorKind};
pub use crate::tool::arguments::{AnswerType, IntoAnswer, ToolArguments};
pub use crate::tool::call_pattern::{CallOutcome, CallPattern};
pub use crate::tool::closure::ToolHandler;
pub use crate::tool::context::{Injectable, ToolProgress};
#[cfg(feature = "dynamic")]
pub use crate::tool::dynamic::{DynamicToolError, DynamicToolErrorKind};
pub use crate::tool::output::IntoToolOutput;
pub use crate::tool::verdict_record::{VerdictKind, VerdictRecord};
pub use crate::tool::waiting::{DecisionKind, DecisionRecord, PendingQuestion, Timestamp};
pub use crate::toolset::missing_context::MissingContext;
pub use crate::toolset::provider::{ClosureProvider, ProvidedTools};
pub use crate::toolset::report::{Finding, FindingKind, ToolCost, ToolReport};
pub use crate::toolset::set::IntoToolSet;
pub use crate::transcript::transcript::Transcript;
