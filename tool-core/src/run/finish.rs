//! The end of a run: with an answer, at a limit, or cancelled.
//!
//! Whatever ends a run, each call gets a result, because APIs refuse conversations without one.

use std::borrow::Cow;

use super::review::REJECTED;
use super::state::{CallRecord, Fact, Stage};
use super::visible::reading_hint;
use crate::model::{FinishReason, Message};
use crate::run::{Answer, Run, RunError, RunErrorKind, StepError, StopReason};
use crate::tool::{ToolExecution, VerdictKind};

impl Run {
    /// Cancels the run: open calls are not executed any more, and finished calls are undone if their tools support it.
    /// A run that has an answer or has stopped already stays as it is.
    pub fn cancel(&mut self) {
        if self.is_in_turn() {
            self.stop(StopReason::Cancelled);
        }
    }

    /// Ends the run, and undoes nothing: open calls are not executed any more, and what the finished ones have done remains. A run that has
    /// an answer or has ended already stays as it is.
    pub fn end(&mut self) {
        if self.is_in_turn() || self.is_undoing() {
            self.touch();
            self.close_turn(StopReason::Cancelled.why_not_executed());
            self.stage = Stage::Ended(StopReason::Cancelled);
        }
    }

    /// Returns `true` if a call of the run may have had an effect: it was executed, or it was started.
    #[must_use]
    pub fn may_have_had_effects(&self) -> bool {
        let has_effect = |record: &CallRecord| match record.outcome() {
            Some(execution) => execution.may_have_had_effect(),
            None => record.has_begun() && !record.waits_without_effect(),
        };
        self.tool_executions().iter().any(ToolExecution::may_have_had_effect)
            || self.stage.records().iter().any(has_effect)
            || self.inner_runs().any(|inner| inner.run().may_have_had_effects())
    }

    /// Returns `true` if the run was cancelled and has calls to undo.
    pub(crate) fn is_cancelled(&self) -> bool {
        matches!(&self.stage, Stage::Undoing(undoing) if matches!(undoing.reason, StopReason::Cancelled))
    }

    /// Cancels the run, also if tools have returned an answer that layers have not judged.
    pub(crate) fn cancel_unjudged(&mut self) {
        match self.has_unjudged_answer() {
            true => self.revoke(),
            false => self.cancel(),
        }
    }

    /// Cancels the run, also if it has an answer: its calls are undone.
    pub(super) fn revoke(&mut self) {
        // What no layer has judged is shown to nobody.
        if matches!(self.stage, Stage::Returned { is_judged: false, .. }) && self.head.shown.sees.answers {
            self.write_answer(REJECTED);
            self.show_returned();
        }
        if matches!(self.stage, Stage::Answered(_) | Stage::Returned { .. }) {
            self.stage = self.stage_after_stop(StopReason::Cancelled);
        }
        self.cancel();
    }

    /// Stops the run without an answer. Every call gets a result, so that the conversation remains valid for a model.
    pub(crate) fn stop(&mut self, reason: StopReason) {
        self.touch();
        self.close_turn(reason.why_not_executed());
        self.stage = self.stage_after_stop(reason);
    }

    /// Rejects the answer: the model reads the reason and answers again. The run ends instead if the model
    /// [refused](StopReason::Refused), if a layer [answered](StopReason::Blocked) in its place, or if the limit of [wrong answers](crate::run::RunLimits::max_wrong_answers) or of turns
    /// is reached.
    ///
    /// # Errors
    ///
    /// Fails if the run has no answer.
    pub fn reject_answer(&mut self, why: &str) -> Result<(), StepError> {
        self.reject_answer_with_hint(why, "")
    }

    /// Rejects the answer, and appends a hint that only the model reads.
    pub(crate) fn reject_answer_with_hint(&mut self, why: &str, hint: &str) -> Result<(), StepError> {
        if !matches!(self.stage, Stage::Answered(_) | Stage::Returned { .. }) {
            return Err(StepError("the run has no answer to reject"));
        }
        let limits = &self.head.settings.limits;
        let blocked = self.verdicts().iter().find(|verdict| verdict.kind == VerdictKind::Answered);
        if let Some(blocked) = blocked {
            // The model must not answer in place of the layer.
            let (layer, reason) = (blocked.layer.clone(), self.answer_text().unwrap_or_default());
            self.stop(StopReason::Blocked { layer, reason });
        } else if let Some(refusal) = self.refusal() {
            self.stop(StopReason::Refused(refusal.to_owned()));
        } else if self.head.settings.rejections.len() >= limits.max_wrong_answers as usize
            || self.is_last_turn()
        {
            self.stop(StopReason::WrongAnswer(why.to_owned()));
        } else {
            self.head.settings.rejections.push(self.new_messages().len());
            self.append(Fact::Rejected(format!("{why}{hint}")));
            self.stage = Stage::Asking;
        }
        Ok(())
    }

    /// Returns the refusal, if the last message is one.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.messages().last().and_then(Message::as_assistant)?.refusal.as_deref()
    }

    /// Returns the text of the answer, if there is one.
    pub(crate) fn answer_text(&self) -> Option<String> {
        match &self.stage {
            Stage::Answered(_) => self.messages().last().map(|message| message.text().into_owned()),
            Stage::Returned { positions, .. } => {
                let outputs = positions.iter().filter_map(|position| self.messages().get(*position));
                let outputs: Vec<_> = outputs.map(text_for_user).collect();
                Some(outputs.join("\n"))
            }
            _ => None,
        }
    }

    /// Returns how the answer ended, and its text, if there is one.
    pub(crate) fn answer(&self) -> Option<(FinishReason, String)> {
        let finish_reason = match &self.stage {
            Stage::Answered(finish_reason) => finish_reason.clone(),
            Stage::Returned { .. } => FinishReason::ToolCalls,
            _ => return None,
        };
        Some((finish_reason, self.answer_text()?))
    }

    /// Returns the text of the answer if it is the output of tools and not a reply of the model.
    pub(crate) fn returned_text(&self) -> Option<String> {
        self.answer_text().filter(|_| matches!(self.stage, Stage::Returned { .. }))
    }

    /// Returns `true` if the call was open when the run stopped. It has a result that says so and takes no other.
    pub(crate) fn is_abandoned(&self, call_id: &str) -> bool {
        let has_stopped = matches!(self.stage, Stage::Undoing(_) | Stage::Ended(_));
        if !has_stopped || self.next_undo_call().is_some_and(|undo| undo.id == call_id) {
            return false;
        }
        let last = self.messages().iter().rev().find_map(Message::as_assistant);
        last.is_some_and(|message| message.tool_calls.iter().any(|call| call.id == call_id))
    }

    /// Returns the answer of a run that is [`Done`](crate::run::Step::Done).
    ///
    /// # Errors
    ///
    /// Fails if the run stopped without an answer or is not done yet.
    pub fn finish(self) -> Result<Answer, RunError> {
        let (finish_reason, text, refusal) = match &self.stage {
            Stage::Answered(finish_reason) => {
                let last =
                    self.messages().last().and_then(Message::as_assistant).cloned().unwrap_or_default();
                (finish_reason.clone(), last.text, last.refusal)
            }
            Stage::Returned { .. } => (FinishReason::ToolCalls, self.answer_text().unwrap_or_default(), None),
            Stage::Ended(reason) => return Err(RunError::new(RunErrorKind::Stopped(reason.clone()), self)),
            Stage::Asking | Stage::Calling(_) | Stage::Undoing(_) => {
                return Err(RunError::new(RunErrorKind::Step(StepError("the run is not done yet")), self));
            }
        };
        let (usage, own_usage_by_agent) = (self.usage(), self.own_usage_by_agent());
        let usage_by_layer = self.usage_by_layer();
        let compactions = self.compactions().to_vec();
        let (messages, tool_executions, cache) = self.history.into_added();
        let mut answer = Answer {
            text,
            refusal,
            finish_reason,
            tool_executions,
            usage,
            own_usage_by_agent,
            usage_by_layer,
            handoffs: self.head.handoffs,
            inner_runs: self.inner_runs.into_vec(),
            turns: self.head.turns,
            cache,
            compactions,
            messages,
        };
        answer.set_agent_name(None);
        Ok(answer)
    }
}

/// Returns the text of an output without what only the model can do with it.
fn text_for_user(output: &Message) -> Cow<'_, str> {
    let text = output.text();
    let Message::Tool(result) = output else { return text };
    match text.strip_suffix(&*reading_hint(&result.call_id)) {
        Some(text) => text.to_owned().into(),
        None => text,
    }
}
