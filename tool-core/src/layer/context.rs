//! What a layer reads besides what it judges.

use std::fmt;

use super::usage_reporter::{Accounts, UsageReporter};
use crate::model::Message;
use crate::tool::{ToolContext, ToolExecution};

/// The context of what a layer sees: which agent speaks, its conversation so far, and the values of the application.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct LayerContext<'a> {
    /// The names of the agents that lead from the agent of the layer to the one that speaks, the outermost first:
    /// [agents as tools](crate::Agent::as_tool), and agents that runs were
    /// [handed off](crate::agent::AgentBuilder::handoff_to) to. Empty for the agent itself.
    pub agents: &'a [String],
    /// The number of the turn, from 1. Outside of a run, it is 0.
    pub turn: u32,
    /// The messages of the run so far.
    pub messages: &'a [Message],
    /// The executions of the finished turns of the run. The other calls of this turn are in the last reply of `messages`.
    pub executions: &'a [ToolExecution],
    /// The context of the run of the layer's agent, with the values for `#[inject]`.
    pub context: &'a ToolContext,
    /// The layer, and where its own requests are charged.
    pub(crate) accounts: Option<(&'a str, &'a dyn Accounts)>,
    pub(crate) run: Option<&'a str>,
}

impl<'a> LayerContext<'a> {
    /// Creates a context outside of a run, for example to test a layer.
    #[must_use]
    pub fn new(context: &'a ToolContext) -> Self {
        Self { agents: &[], turn: 0, messages: &[], executions: &[], context, accounts: None, run: None }
    }

    /// Returns the [id](crate::run::RunId) of the run that is spoken of, or `None` outside of a run.
    #[must_use]
    pub fn run(&self) -> Option<&'a str> {
        self.run
    }

    /// Returns where the layer reports what its own requests to models have used.
    #[must_use]
    pub fn usage_reporter(&self) -> UsageReporter {
        self.accounts.map_or(UsageReporter::NONE, |(layer, accounts)| accounts.account(layer))
    }
}

/// Omits messages and executions.
impl fmt::Debug for LayerContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut place = f.debug_struct("LayerContext");
        place.field("agents", &self.agents).field("turn", &self.turn).finish_non_exhaustive()
    }
}
