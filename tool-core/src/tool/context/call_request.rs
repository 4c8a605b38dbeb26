//! A call for another process to execute.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::{ConversationId, RunUser, ToolCall};
use crate::tool::{Attempt, CallNotes, CallToUndo, ProviderNotes};

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
    pub undone: Option<CallToUndo>,
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
    /// What the providers of the agent's tools know from the answers of the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) providers: Vec<ProviderNotes>,
    /// The reason why nobody can be asked where the call is executed, if so.
    #[serde(skip)]
    pub(crate) nobody_to_ask: Option<String>,
}

impl CallRequest {
    /// Creates the request of a call that belongs to no run, such as one received over another protocol. Its key is unique. A run
    /// [takes it over](Self::into_run).
    #[must_use]
    pub fn standalone(call: ToolCall) -> Self {
        Self {
            attempt: Attempt::standalone(&call.id),
            call,
            undone: None,
            user: None,
            conversation: None,
            definition: None,
            notes: None,
            providers: Vec::new(),
            nobody_to_ask: None,
        }
    }

    /// States that nobody can be asked where the call is executed. Tools read the reason.
    pub fn refuse_questions(&mut self, why: impl Into<String>) {
        self.nobody_to_ask = Some(why.into());
    }
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
