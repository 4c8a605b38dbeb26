//! Calls and responses for the rules that decide about them.

use std::fmt;

use crate::model::{ChatResponse, ModelOptions, ToolCall};
use crate::tool::{ToolArguments, ToolError};

/// A call that a model has requested, for a [rule](crate::agent::AgentBuilder::needs_approval) that decides whether it needs approval.
///
/// ```
/// use tool_core::Agent;
/// use tool_core::schemars::JsonSchema;
/// # use tool_core::testing::ScriptedModel;
///
/// #[derive(serde::Deserialize, JsonSchema)]
/// struct Target {
///     path: String,
/// }
///
/// # let model = ScriptedModel::new();
/// let builder = Agent::builder(model).needs_approval(|call| {
///     let is_harmless = |target: Target| target.path.starts_with("/tmp/");
///     call.name == "write_file" && !call.arguments_as().is_ok_and(is_harmless)
/// });
/// ```
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct ProposedCall<'a> {
    /// The name of the tool.
    pub name: &'a str,
    /// The names of the agents that lead to the call, the outermost first: those of [agents as tools](crate::Agent::as_tool), and of the agents
    /// that runs were [handed off](crate::agent::AgentBuilder::handoff_to) to. Empty for a call of the agent itself.
    pub agents: &'a [&'a str],
    pub(super) call: &'a ToolCall,
}

impl ProposedCall<'_> {
    /// Parses the arguments as the tool does, like [`ToolCall::arguments_as`]. Other arguments are ignored.
    ///
    /// # Errors
    ///
    /// Fails if the arguments do not match the type. The tool may still be able to read them, so a rule should then require approval.
    pub fn arguments_as<T: ToolArguments>(&self) -> Result<T, ToolError> {
        self.call.arguments_as()
    }

    /// Returns the arguments as the model wrote them. Do not search this text: the same value can be written in many ways, such as
    /// `"\/etc"` for `"/etc"`, and a tool repairs what it reads.
    #[must_use]
    pub fn raw_arguments(&self) -> &str {
        &self.call.arguments
    }
}

/// Omits arguments.
impl fmt::Debug for ProposedCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, agents, call: _ } = self;
        f.debug_struct("ProposedCall").field("name", name).field("agents", agents).finish_non_exhaustive()
    }
}

/// A response with calls, for a [rule](crate::agent::AgentBuilder::execute_calls_if) that decides whether the agent executes them.
///
/// ```
/// use tool_core::Agent;
/// # use tool_core::testing::ScriptedModel;
///
/// # let model = ScriptedModel::new();
/// let builder = Agent::builder(model).execute_calls_if(|reply| {
///     reply.agents.is_empty() && reply.response.message.tool_calls.len() == 1
/// });
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ProposedReply<'a> {
    /// The response. The names of its calls are those of the tools that are executed.
    pub response: &'a ChatResponse,
    /// The options of its request.
    pub options: &'a ModelOptions,
    /// The names of the agents that lead to the response, as in [`ProposedCall::agents`].
    pub agents: &'a [&'a str],
}

/// Decides whether a call needs approval.
pub(super) type NeedsApproval = dyn Fn(&ProposedCall<'_>) -> bool + Send + Sync;

/// Decides whether the agent executes the calls of a response.
pub(super) type ExecuteCallsIf = dyn Fn(&ProposedReply<'_>) -> bool + Send + Sync;
