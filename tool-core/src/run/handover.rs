//! Handing a run over to another agent.

use serde::{Deserialize, Serialize};

use super::call::{CallRecord, CallState};
use super::turn::Turn;
use crate::content::{Content, Part};
use crate::model::{Message, ModelOptions, ToolChoice, ToolKind, Usage};
use crate::run::{ErrorPolicies, Run};
use crate::tool::{ToolExecution, ToolOutput};
use crate::transcript::Transcript;

/// A step by which an agent [handed its run over](crate::agent::AgentBuilder::hand_over_to) to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Handover {
    agent: String,
    turn: u32,
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

impl Handover {
    /// Returns the name of the tool by which the run was handed over.
    #[must_use]
    pub fn agent(&self) -> &str {
        &self.agent
    }

    /// Returns the number of the turn in which the run was handed over. Later ones are of the new agent.
    #[must_use]
    pub fn turn(&self) -> u32 {
        self.turn
    }

    /// Adds the handovers of a run to its transcript, each after its turn.
    pub(super) fn add_to_transcript<'a>(
        handovers: &'a [Self],
        executions: &'a [ToolExecution],
        transcript: Transcript<'a>,
    ) -> Transcript<'a> {
        handovers.iter().fold(transcript, |transcript, handover| {
            match handover.executions.checked_sub(1).and_then(|last| executions.get(last)) {
                Some(last) => transcript.with_handover(&last.call().id, &handover.agent),
                None => transcript,
            }
        })
    }
}

/// The settings of a question that agents join with theirs when they take the run over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct QuestionSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instructions: Option<Content>,
    #[serde(skip_serializing_if = "super::is_default")]
    pub(crate) options: ModelOptions,
}

/// The settings of a run that are those of its agent.
pub(crate) struct AgentSettings {
    pub(crate) instructions: Option<Content>,
    pub(crate) error_policies: ErrorPolicies,
    pub(crate) tool_choice: ToolChoice,
    pub(crate) parallel_tool_calls: Option<bool>,
    pub(crate) options: ModelOptions,
}

/// Returns the executions of the current agent, which alone can stand for later calls: an agent that took over can have other tools
/// of the same names.
pub(super) fn executions_of_agent<'e>(
    executions: &'e [ToolExecution],
    handovers: &[Handover],
) -> &'e [ToolExecution] {
    let before = handovers.last().map_or(0, |handover| handover.executions);
    executions.get(before..).unwrap_or_default()
}

/// Returns `true` if the call was executed and hands the run over.
fn hands_over(record: &CallRecord) -> bool {
    let is_executed = |one: &ToolExecution| one.was_executed() && one.outcome().is_ok();
    record.kind == Some(ToolKind::Handoff) && record.outcome().is_some_and(is_executed)
}

impl Turn {
    /// Returns the position of the first call that hands the run over.
    pub(super) fn handover(&self) -> Option<usize> {
        self.calls.iter().position(hands_over)
    }

    /// Adds to the outputs of all but the first call that hands the run over that it was not followed.
    pub(super) fn refuse_further_handovers(&mut self, agent: &str) {
        for record in self.calls.iter_mut().filter(|record| hands_over(record)).skip(1) {
            let CallState::Finished(execution) = &mut record.state else { continue };
            if let Ok(output) = &mut execution.outcome {
                let note =
                    format!("not handed over, because this turn handed the run over to `{agent}`; output: ");
                let content = [Part::from(note)].into_iter().chain(output.content().clone().into_parts());
                let data = output.stored_data().cloned();
                let refused = ToolOutput::from(content.collect::<Content>());
                *output = data.into_iter().fold(refused, ToolOutput::with_data);
            }
        }
    }
}

impl Run {
    /// Returns the steps by which the run was handed over to other agents, in their order.
    #[must_use]
    pub fn handovers(&self) -> &[Handover] {
        &self.handovers
    }

    /// Stores the settings of the question. Those that are unset here have the values that are stored already.
    pub(crate) fn with_question_settings(mut self, question: QuestionSettings) -> Self {
        let stored = self.question_settings();
        let question = QuestionSettings {
            instructions: question.instructions.or(stored.instructions),
            options: question.options.or(&stored.options),
        };
        self.settings.question = (question != QuestionSettings::default()).then(|| Box::new(question));
        self
    }

    pub(crate) fn question_settings(&self) -> QuestionSettings {
        self.settings.question.as_deref().cloned().unwrap_or_default()
    }

    pub(super) fn record_handover(&mut self, agent: String) {
        let earlier_usage = self.handovers.last().map_or(self.usage, |last| last.usage);
        self.handovers.push(Handover {
            agent,
            turn: self.turns,
            executions: self.tool_executions.len(),
            usage: Usage::default(),
            earlier_usage,
            is_entered: false,
        });
    }

    /// Gives the run the instructions and settings of the agent that it was handed over to. The instructions replace those of
    /// the agent before, if it had some.
    pub(crate) fn enter_handover(
        &mut self,
        position: usize,
        had_instructions: bool,
        mut settings: AgentSettings,
    ) {
        let Some(handover) = self.handovers.get_mut(position).filter(|handover| !handover.is_entered) else {
            return;
        };
        handover.is_entered = true;
        if had_instructions && matches!(self.messages.first(), Some(Message::System(_))) {
            self.messages.remove(0);
            self.history_len = self.history_len.saturating_sub(1);
        }
        if let Some(instructions) = settings.instructions.take() {
            self.messages.insert(0, Message::System(instructions));
            self.history_len += 1;
        }
        (self.cache, self.call_index) = Default::default();
        self.set_agent_settings(settings);
    }

    /// Sets all but the instructions, which are among the messages.
    pub(crate) fn set_agent_settings(&mut self, settings: AgentSettings) {
        self.settings.error_policies = settings.error_policies;
        self.settings.tool_choice = settings.tool_choice;
        self.settings.parallel_tool_calls = settings.parallel_tool_calls;
        self.settings.options = settings.options;
    }

    /// Returns the number of handovers before the call that the next call undoes.
    pub(crate) fn handovers_before_undone(&self) -> Option<usize> {
        let position = self.undoing()?.position;
        Some(self.handovers.iter().filter(|handover| handover.executions <= position).count())
    }

    /// Returns the tokens of each agent that the run was of, the first under an empty name. A run does not know its name.
    pub(super) fn own_usage_by_agent(&self) -> Vec<(String, Usage)> {
        let first = self.handovers.first().map_or(self.usage, |handover| handover.earlier_usage);
        let later = self.handovers.iter().map(|handover| (handover.agent.clone(), handover.usage));
        [(String::new(), first)].into_iter().chain(later).collect()
    }
}
