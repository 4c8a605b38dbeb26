//! Tools: what they are, their context and outcomes, and how their calls are executed.

pub(crate) mod timing;
pub(crate) mod panic;
mod truncate;
mod error;
mod output;
mod arguments;
mod call_arguments;
mod verdict_record;
mod waiting;
mod call_history;
mod execution;
mod message;
pub(crate) mod context;
pub(crate) mod future;
mod tool_trait;
mod retry;
mod settings;
mod external;
mod closure;
pub(crate) mod declared;
#[cfg(feature = "dynamic")]
mod dynamic;

pub use self::arguments::{AnswerType, IntoAnswer, ToolArguments};
pub(crate) use self::arguments::{Wrapped, arguments_contract, decode_answer, decode_arguments};
pub use self::call_history::Origin;
pub(crate) use self::call_history::{CallHistory, Judgement};
pub use self::closure::{FunctionTool, ToolHandler};
pub use self::context::{
    Attempt, IdempotencyKey, Injectable, Injection, Progress, ToolContext, ToolProgress, Undone,
};
pub(crate) use self::context::{AttemptContext, CallRequest, ProgressSink, RunRules};
#[cfg(feature = "dynamic")]
pub use self::dynamic::{DynamicTool, DynamicToolError, DynamicToolErrorKind};
pub use self::error::{ToolError, ToolErrorKind};
pub use self::execution::ToolExecution;
pub use self::external::ExternalTool;
pub(crate) use self::future::Returned;
pub use self::future::ToolFuture;
pub use self::output::{IntoToolOutput, Json, ToolOutput};
pub(crate) use self::output::{Outcome, limit_outcome, truncate_outcome, write_outcome, write_output};
pub(crate) use self::panic::{Panicked, panic_text};
pub use self::tool_trait::Tool;
pub(crate) use self::truncate::exceeds;
pub(crate) use self::verdict_record::OriginalOutcome;
pub use self::verdict_record::{VerdictKind, VerdictRecord};
pub(crate) use self::waiting::{
    AgentNote, Asking, AskingAgent, CallNotes, MAX_TEXT, Passed, ProviderNotes, Reply,
};
pub use self::waiting::{
    AskError, AskErrorKind, AskQuestion, Asker, CallDecision, DecisionKind, DecisionRecord, Question,
    Timestamp, WaitId,
};

/// The items of this module that generated code names.
pub(crate) mod private {
    pub use super::context::{InjectableByValue, for_call, look_up, missing_context};
    pub use super::declared::{
        Arguments, DeclaredTool, Details, Listed, ParameterDetails, StaticTool, ToolName,
    };
    pub use super::future::{Pending, blocking, later};
    pub use super::output::{FallibleOptionKind, PlainKind, Returned, ToolFailure, ToolReturn};
}
