//! Tools: what they are, their context and outcomes, and how their calls are executed.

pub(crate) mod timing;
pub(crate) mod panic;
mod truncate;
mod error;
pub(crate) mod output;
pub(crate) mod arguments;
mod call_arguments;
pub(crate) mod call_pattern;
pub(crate) mod verdict_record;
pub(crate) mod waiting;
mod call_history;
mod execution;
mod message;
pub(crate) mod context;
pub(crate) mod future;
mod tool_trait;
mod retry;
mod settings;
mod external;
pub(crate) mod closure;
pub(crate) mod declared;
#[cfg(feature = "dynamic")]
pub(crate) mod dynamic;

pub(crate) use self::arguments::{AnswerType, IntoAnswer, ToolArguments};
pub(crate) use self::arguments::{Wrapped, arguments_contract, decode_answer, decode_arguments};
pub use self::call_history::OutcomeOrigin;
pub(crate) use self::call_history::{CallHistory, Judgement};
pub(crate) use self::call_pattern::CallPattern;
pub use self::closure::FunctionTool;
pub use self::context::{Attempt, CallToUndo, IdempotencyKey, Progress, ToolContext};
pub(crate) use self::context::{AttemptContext, CallRequest, ProgressSink, RunRules};
pub(crate) use self::context::{Injectable, Injection, ToolProgress};
#[cfg(feature = "dynamic")]
pub use self::dynamic::DynamicTool;
pub use self::error::{ToolError, ToolErrorKind};
pub use self::execution::ToolExecution;
pub use self::external::ExternalTool;
pub(crate) use self::future::Returned;
pub use self::future::ToolFuture;
pub(crate) use self::output::IntoToolOutput;
pub use self::output::{Json, ToolOutput};
pub(crate) use self::output::{Outcome, limit_outcome, truncate_outcome, write_outcome, write_output};
pub(crate) use self::panic::{Panicked, panic_text};
pub use self::tool_trait::Tool;
pub(crate) use self::truncate::exceeds;
pub(crate) use self::verdict_record::OriginalOutcome;
pub(crate) use self::verdict_record::{VerdictKind, VerdictRecord};
pub(crate) use self::waiting::{
    AgentNote, Asking, AskingAgent, CallNotes, MAX_TEXT, Passed, ProviderNotes, QuestionReply,
};
pub use self::waiting::{AskError, AskErrorKind, Asker, Question, WaitId};
pub(crate) use self::waiting::{CallDecision, DecisionKind, DecisionRecord, Timestamp};

/// The items of this module that generated code names.
pub(crate) mod private {
    pub use super::call_pattern::{ArgumentPattern, Members};
    pub use super::context::{InjectableByValue, for_call, look_up, missing_context};
    pub use super::declared::{
        Arguments, Declared, DeclaredTool, Details, Listed, ParameterDetails, Signature, StaticTool, ToolName,
    };
    pub use super::future::{Pending, blocking, later};
    pub use super::output::{FallibleOptionKind, PlainKind, Returned, ToolFailure, ToolReturn};
}
