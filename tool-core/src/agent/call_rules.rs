//! The rules about calls and what they cost: those of the agents of a run, and of the runs that it is inside of.

use std::sync::Arc;

use super::proposed::{ExecuteCallsIf, ProposedCall, ProposedReply};
use super::spending::Spending;
use crate::agent::Agent;
use crate::model::{ChatResponse, ModelOptions, ToolCall};

/// The rules for the calls of a run. Rules are only ever added: by an agent that takes a run over, and by an agent whose call asks another.
#[derive(Clone)]
pub(super) struct CallRules {
    /// The run itself, then those that it is inside of, the outermost last.
    levels: Vec<Level>,
    /// What the requests to the models are charged to.
    pub(super) spending: Spending,
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
    pub(super) fn new(
        agent: Agent,
        execute_calls_if: Option<Arc<ExecuteCallsIf>>,
        spending: Spending,
    ) -> Self {
        let agents = vec![agent];
        let level = Level { called_as: None, handed_off_to: Vec::new(), agents, execute_calls_if };
        Self { levels: vec![level], spending }
    }

    /// Adds the rules of the run to which the call with this name belongs.
    pub(super) fn inside(mut self, outer: &Self, called_as: &str) -> Self {
        if let Some(own) = self.levels.last_mut() {
            own.called_as = Some(called_as.to_owned());
        }
        self.levels.extend_from_slice(&outer.levels);
        self.spending.inside(&outer.spending);
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
