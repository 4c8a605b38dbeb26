//! The steps by which agents hand a run over.

use serde::{Deserialize, Serialize};

use crate::model::Usage;
use crate::tool::ToolExecution;
use crate::transcript::Transcript;

/// A step by which an agent [handed its run over](crate::agent::AgentBuilder::handoff_to) to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Handoff {
    pub(super) agent: String,
    pub(super) turn: u32,
    /// The number of the executions before, which other agents undo.
    #[serde(rename = "calls")]
    pub(super) executions: usize,
    /// The tokens of the agent since then.
    #[serde(default)]
    pub(super) usage: Usage,
    /// The tokens of the agent before.
    #[serde(default)]
    pub(super) earlier_usage: Usage,
    /// The run has the instructions and settings of the agent.
    #[serde(default)]
    pub(crate) is_entered: bool,
}

impl Handoff {
    /// Returns the name of the tool by which the run was handed off.
    #[must_use]
    pub fn agent(&self) -> &str {
        &self.agent
    }

    /// Returns the number of the turn in which the run was handed off. Later ones are of the new agent.
    #[must_use]
    pub fn turn(&self) -> u32 {
        self.turn
    }

    /// Adds the handoffs of a run to its transcript, each after its turn.
    pub(super) fn add_to_transcript<'a>(
        handoffs: &'a [Self],
        executions: &'a [ToolExecution],
        transcript: Transcript<'a>,
    ) -> Transcript<'a> {
        handoffs.iter().fold(transcript, |transcript, handoff| {
            match handoff.executions.checked_sub(1).and_then(|last| executions.get(last)) {
                Some(last) => transcript.with_handoff(&last.call().id, &handoff.agent),
                None => transcript,
            }
        })
    }
}

/// Returns the executions of the current agent, which alone can stand for later calls: an agent that took over can have other tools
/// of the same names.
pub(super) fn executions_of_agent<'e>(
    executions: &'e [ToolExecution],
    handoffs: &[Handoff],
) -> &'e [ToolExecution] {
    let before = handoffs.last().map_or(0, |handoff| handoff.executions);
    executions.get(before..).unwrap_or_default()
}
