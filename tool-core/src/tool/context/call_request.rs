//! A call for another process to execute.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::{ConversationId, RunUser, ToolCall};
use crate::tool::{Attempt, CallNotes, Undone};

/// A call that a run has started, for another process to execute. [`Run::request_call`](crate::run::Run::request_call) returns it.
#[derive(Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallRequest {
    /// The call.
    pub call: ToolCall,
    /// The attempt, with the key of the call.
    pub attempt: Attempt,
    /// The call that this one undoes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undone: Option<Undone>,
    /// [Whose run it is](crate::run::Run::user).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<RunUser>,
    /// The conversation in which the outermost agent was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<ConversationId>,
    /// The [hash](crate::model::ToolDefinition::hash) of the definition that the model was offered and a person approved. A tool with
    /// another definition is not executed. [`Run::request_call`](crate::run::Run::request_call) sets it for approved calls, and leaves
    /// it to its caller for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
    /// What the call knows from earlier executions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) notes: Option<Box<CallNotes>>,
}

/// Omits arguments, which can be secret.
impl fmt::Debug for CallRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallRequest")
            .field("call", &self.call)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}
