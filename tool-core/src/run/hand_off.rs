//! Handing a run over to another agent.
//!
//! A handoff names a tool, and the driver follows the names from the agent that was asked, because a state must not contain agents.

use super::amendment::Amendment;
use super::handoff::Handoff;
use super::settings::{AgentSettings, QuestionSettings};
use super::state::{CallRecord, Fact, Run, Stage, Turn};
use crate::content::{Content, Part};
use crate::model::{ToolKind, Usage};
use crate::tool::{ToolExecution, ToolOutput};

/// What precedes the outputs of further handoffs of a turn, and the name of the agent that was followed.
const NOT_HANDED_OFF: &str = "not handed off, because this turn handed the run off to";

/// What precedes the outputs themselves.
const OUTPUT: &str = "; output: ";

/// Returns the text of a handoff's output as its tool gave it, if it was not followed.
pub(crate) fn without_refusal(text: &str) -> Option<&str> {
    Some(text.strip_prefix(NOT_HANDED_OFF)?.split_once(OUTPUT)?.1)
}

/// Returns `true` if the call was executed and hands the run over.
fn hands_over(record: &CallRecord) -> bool {
    let is_executed = |one: &ToolExecution| one.was_executed() && one.outcome().is_ok();
    record.kind == Some(ToolKind::Handoff) && record.outcome().is_some_and(is_executed)
}

impl Turn {
    /// Returns the position of the first call that hands the run over.
    pub(super) fn handoff(&self) -> Option<usize> {
        self.calls.iter().position(hands_over)
    }

    /// Returns the records of all but the first call that hands the run over, whose outputs state that it was not followed.
    fn refused_handoffs(&self, agent: &str) -> Vec<ToolExecution> {
        let further = self.calls.iter().filter(|record| hands_over(record)).skip(1);
        let mut refused: Vec<_> = further.filter_map(CallRecord::outcome).cloned().collect();
        for output in refused.iter_mut().filter_map(|execution| execution.outcome.as_mut().ok()) {
            let note = format!("{NOT_HANDED_OFF} `{agent}`{OUTPUT}");
            let content = [Part::from(note)].into_iter().chain(output.content().clone().into_parts());
            let data = output.stored_data().cloned();
            *output =
                data.into_iter().fold(ToolOutput::from(content.collect::<Content>()), ToolOutput::with_data);
        }
        refused
    }
}

impl Run {
    /// Returns the steps by which the run was handed off to other agents, in their order.
    #[must_use]
    pub fn handoffs(&self) -> &[Handoff] {
        &self.head.handoffs
    }

    /// Stores the settings of the question. Those that are unset here have the values that are stored already.
    pub(crate) fn with_question_settings(mut self, question: QuestionSettings) -> Self {
        let stored = self.question_settings();
        let question = QuestionSettings {
            instructions: question.instructions.or(stored.instructions),
            options: question.options.or(&stored.options),
        };
        self.head.settings.question = (question != QuestionSettings::default()).then(|| Box::new(question));
        self
    }

    pub(crate) fn question_settings(&self) -> QuestionSettings {
        self.head.settings.question.as_deref().cloned().unwrap_or_default()
    }

    /// Adds to the outputs of all but the first call of the turn that hands the run over that it was not followed.
    pub(super) fn refuse_further_handoffs(&mut self, agent: &str) {
        let Stage::Calling(turn) = &self.stage else { return };
        for refused in turn.refused_handoffs(agent) {
            self.amend(Amendment::Result(refused.into()));
        }
    }

    pub(super) fn record_handoff(&mut self, agent: String) {
        // The instructions, and mostly the tools, are others from now on.
        if let Some(context) = &mut self.head.context {
            context.sent = 0;
        }
        let earlier_usage = self.head.handoffs.last().map_or(self.head.usage, |last| last.usage);
        self.head.handoffs.push(Handoff {
            agent,
            turn: self.head.turns,
            executions: self.tool_executions().len(),
            usage: Usage::default(),
            earlier_usage,
            is_entered: false,
        });
    }

    /// Gives the run the instructions and settings of the agent that it was handed off to. The instructions replace the ones of
    /// the agent before, if it had some.
    pub(crate) fn enter_handoff(
        &mut self,
        position: usize,
        had_instructions: bool,
        mut settings: AgentSettings,
    ) {
        let Some(handoff) = self.head.handoffs.get_mut(position).filter(|handoff| !handoff.is_entered) else {
            return;
        };
        handoff.is_entered = true;
        let agent = handoff.agent.clone();
        self.append(Fact::HandedOff(agent));
        let instructions = settings.instructions.take();
        self.amend(Amendment::Instructions { had_some: had_instructions, instructions });
        self.set_agent_settings(settings);
    }

    /// Sets all but the instructions, which are among the messages.
    pub(crate) fn set_agent_settings(&mut self, settings: AgentSettings) {
        self.head.settings.error_policies = settings.error_policies;
        self.head.settings.tool_choice = settings.tool_choice;
        self.head.settings.parallel_tool_calls = settings.parallel_tool_calls;
        self.head.settings.options = settings.options;
    }

    /// Returns the number of handoffs before the call that the next call undoes.
    pub(crate) fn handoffs_before_undone(&self) -> Option<usize> {
        let position = self.undoing()?.target.position;
        Some(self.head.handoffs.iter().filter(|handoff| handoff.executions <= position).count())
    }

    /// Returns the tokens of each agent that the run was of, the first under an empty name. A run does not know its name.
    pub(super) fn own_usage_by_agent(&self) -> Vec<(String, Usage)> {
        let first = self.head.handoffs.first().map_or(self.head.usage, |handoff| handoff.earlier_usage);
        let later = self.head.handoffs.iter().map(|handoff| (handoff.agent.clone(), handoff.usage));
        [(String::new(), first)].into_iter().chain(later).collect()
    }
}
