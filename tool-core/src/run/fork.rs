//! Another run with the same beginning.
//!
//! A fork copies the messages and records before a position between two turns, and not the log, because the first save of a run has no
//! positions inside. What can be undone stays with the earlier run, because both would otherwise undo it.

use super::id::RunId;
use super::state::{Head, Run};
use super::step_error::StepError;
use crate::model::{Message, Usage};

impl Run {
    /// Returns a new run that begins with the first messages of this one, and whose next step is a request to the model. What was executed
    /// before belongs to this run: the new one neither executes nor undoes it.
    pub(crate) fn fork(&self, position: usize) -> Result<Self, StepError> {
        if self.is_undoing() || self.head.is_revoked || !self.undo_executions().is_empty() {
            return Err(StepError(
                "calls of the run were undone, so it cannot go on from an earlier position",
            ));
        }
        let messages = self.messages();
        if position <= self.history.given() || position > messages.len() {
            return Err(StepError(
                "the position is not behind the question of the run and within its messages",
            ));
        }
        let (before, after) = messages.split_at(position);
        let is_result = |message: &Message| matches!(message, Message::Tool(_));
        if matches!(before.last(), Some(Message::Assistant(_))) || after.first().is_some_and(is_result) {
            return Err(StepError(
                "the position is inside a turn or behind an answer; fork behind a message of the user or behind all results of a turn",
            ));
        }
        let replies = |messages: &[Message]| messages.iter().filter_map(Message::as_assistant).count();
        let added = &before[self.history.given()..];
        let turns = u32::try_from(replies(added)).unwrap_or(u32::MAX);
        let mut handoffs = self.head.handoffs.clone();
        if handoffs.iter().any(|handoff| handoff.turn > turns || !handoff.is_entered) {
            return Err(StepError("the position is before a handoff of the run"));
        }
        for handoff in &mut handoffs {
            (handoff.usage, handoff.earlier_usage) = (Usage::default(), Usage::default());
        }
        let mut settings = self.head.settings.clone();
        settings.rejections.retain(|rejected| *rejected < added.len());
        let head = Head {
            agent_name: self.head.agent_name.clone(),
            user: self.head.user.clone(),
            settings,
            has_own_budget: self.head.has_own_budget,
            has_own_limits: self.head.has_own_limits,
            has_only_own_tools: self.head.has_only_own_tools,
            has_loaded_history: self.head.has_loaded_history,
            turns,
            handoffs,
            ..Head::default()
        };
        Ok(Self {
            id: RunId::unique(),
            head,
            history: self.history.beginning(position),
            now: self.now,
            ..Self::new([])
        })
    }
}
