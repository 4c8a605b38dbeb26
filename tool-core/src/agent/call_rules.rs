//! The rules about calls: those of the agents of a run, and of the runs that it is inside of.

use std::fmt;
use std::sync::Arc;

use crate::agent::Agent;
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
    /// The names of the agents that lead to the call, the outermost first: those of [agents as tools](Agent::as_tool), and of the agents
    /// that runs were [handed off](crate::agent::AgentBuilder::handoff_to) to. Empty for a call of the agent itself.
    pub agents: &'a [&'a str],
    call: &'a ToolCall,
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

/// The rules for the calls of a run. Rules are only ever added: by an agent that takes a run over, and by an agent whose call asks another.
#[derive(Clone)]
pub(super) struct CallRules {
    /// The run itself, then those that it is inside of, the outermost last.
    levels: Vec<Level>,
}

/// The rules of one run.
#[derive(Clone)]
struct Level {
    /// The name of the tool by which the run was asked for, unless it is the outermost.
    called_as: Option<String>,
    handed_off_to: Vec<String>,
    /// The agents that the run is or was of.
    agents: Vec<Agent>,
    /// The rule of the question, in place of those of the agents.
    execute_calls_if: Option<Arc<ExecuteCallsIf>>,
}

impl CallRules {
    pub(super) fn new(agent: Agent, execute_calls_if: Option<Arc<ExecuteCallsIf>>) -> Self {
        let agents = vec![agent];
        Self { levels: vec![Level { called_as: None, handed_off_to: Vec::new(), agents, execute_calls_if }] }
    }

    /// Adds the rules of the run to which the call with this name belongs.
    pub(super) fn inside(mut self, outer: &Self, called_as: &str) -> Self {
        if let Some(own) = self.levels.last_mut() {
            own.called_as = Some(called_as.to_owned());
        }
        self.levels.extend_from_slice(&outer.levels);
        self
    }

    /// Adds the rules of an agent that takes the run over.
    pub(super) fn hand_off(&mut self, name: &str, agent: &Agent) {
        if let Some(own) = self.levels.first_mut() {
            own.handed_off_to.push(name.to_owned());
            own.agents.push(agent.clone());
        }
    }

    /// Returns `true` if there is a rule about approval.
    pub(super) fn can_demand(&self) -> bool {
        self.levels.iter().flat_map(|level| &level.agents).any(|agent| agent.0.needs_approval.is_some())
    }

    /// Returns the number of runs around this one.
    pub(super) fn outermost(&self) -> usize {
        self.levels.len() - 1
    }

    /// Returns how many levels further out the outermost rule is that demands approval of the call.
    pub(super) fn demand(&self, call: &ToolCall) -> Option<usize> {
        (0..self.levels.len()).rev().find(|level| {
            let agents = &*self.path_from(*level);
            let proposed = ProposedCall { name: &call.name, agents, call };
            let rules = self.levels[*level].agents.iter().filter_map(|agent| agent.0.needs_approval.as_ref());
            rules.into_iter().any(|needs_approval| needs_approval(&proposed))
        })
    }

    /// Returns `true` if all rules let the agent execute the calls of the response.
    pub(super) fn execute(&self, response: &ChatResponse, options: &ModelOptions) -> bool {
        self.levels.iter().enumerate().all(|(position, level)| {
            let reply = ProposedReply { response, options, agents: &self.path_from(position) };
            match &level.execute_calls_if {
                Some(execute) => execute(&reply),
                None => {
                    let mut rules = level.agents.iter().filter_map(|agent| agent.0.execute_calls_if.as_ref());
                    rules.all(|execute| execute(&reply))
                }
            }
        })
    }

    /// Returns the names of the agents between the run of a level and this run.
    fn path_from(&self, level: usize) -> Vec<&str> {
        let inner = self.levels[..level].iter().rev();
        let inner = inner.flat_map(|inner| inner.called_as.iter().chain(&inner.handed_off_to));
        self.levels[level].handed_off_to.iter().chain(inner).map(String::as_str).collect()
    }
}
