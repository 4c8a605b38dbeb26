//! How a run ends: with an answer, beyond a limit, or given up.

use std::time::Duration;

use super::ending::Ending;
use super::error::Kind;
use super::state::Stage;
use crate::model::{FinishReason, Message};
use crate::run::{Answer, Run, RunError, StepError};
use crate::tool::ToolExecution;

impl Run {
    pub(super) fn has_read_too_much(&self) -> Option<Ending> {
        let limit = self.settings.limits.output?;
        let length = |one: &ToolExecution| match one.outcome() {
            Ok(output) => output.content().len(),
            Err(error) => error.text().len(),
        };
        let read: usize = self.tool_executions.iter().map(length).sum();
        (read > limit).then_some(Ending::Output(limit))
    }

    /// Adds to the time that the run was under way; a run without a clock is told by its driver.
    pub fn add_elapsed(&mut self, time: Duration) {
        self.time = self.time.saturating_add(time);
        if let Some(limit) = self.settings.limits.time.filter(|limit| self.time >= *limit)
            && matches!(self.stage, Stage::Asking | Stage::Calling(_))
        {
            self.end(Ending::Time(limit));
        }
    }

    /// How long the run may still be under way, if that is limited.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        // What is undone is undone, however long it takes.
        let is_limited = matches!(self.stage, Stage::Asking | Stage::Calling(_));
        let limit = self.settings.limits.time.filter(|_| is_limited)?;
        Some(limit.saturating_sub(self.time))
    }

    /// Ends the run: what is open is not made any more, and what was done is undone by the tools that can.
    pub fn cancel(&mut self) {
        if matches!(self.stage, Stage::Asking | Stage::Calling(_)) {
            self.end(Ending::Cancelled);
        }
    }

    /// Ends the run without an answer. Every call gets a result, so that the conversation stays one that a model
    /// accepts.
    pub(super) fn end(&mut self, ending: Ending) {
        if let Stage::Calling(turn) = &mut self.stage {
            let turn = std::mem::take(turn);
            self.close(turn, ending.why_not_made());
        }
        self.stage = self.undoing(ending);
    }

    /// Says that the answer will not do: the model reads why and answers again, or the run ends if it was told so
    /// [often enough](crate::RunLimits::wrong_answers), or has taken all its turns. A refusal ends it at once.
    ///
    /// # Errors
    ///
    /// The run has no answer.
    pub fn reject_answer(&mut self, why: &str) -> Result<(), StepError> {
        self.reject_answer_with(why, "")
    }

    /// The same, with what the model reads behind it, and nobody else.
    pub(crate) fn reject_answer_with(&mut self, why: &str, hint: &str) -> Result<(), StepError> {
        if !matches!(self.stage, Stage::Answered(_) | Stage::Returned(_)) {
            return Err(StepError("to reject an answer that it does not have"));
        }
        let limits = &self.settings.limits;
        let refusal =
            self.messages.last().and_then(Message::as_assistant).and_then(|last| last.refusal.clone());
        if let Some(refusal) = refusal {
            self.end(Ending::Refused(refusal));
        } else if self.settings.wrong_answers >= limits.wrong_answers || self.turns >= limits.turns.max(1) {
            self.end(Ending::WrongAnswer(why.to_owned()));
        } else {
            self.settings.wrong_answers += 1;
            self.messages.push(Message::user(format!("{why}{hint}")));
            self.stage = Stage::Asking;
        }
        Ok(())
    }

    /// The text of the answer, if there is one.
    pub(crate) fn answer_text(&self) -> Option<String> {
        match &self.stage {
            Stage::Answered(_) => self.messages.last().map(|message| message.text().into_owned()),
            Stage::Returned(positions) => {
                let outputs = positions.iter().filter_map(|position| self.messages.get(*position));
                let outputs: Vec<_> = outputs.map(Message::text).collect();
                Some(outputs.join("\n"))
            }
            _ => None,
        }
    }

    /// The call was open when the run ended without an answer: it has a result that says so, and takes no other.
    pub(crate) fn has_given_up(&self, call_id: &str) -> bool {
        let has_ended = matches!(self.stage, Stage::Undoing { .. } | Stage::Ended(_));
        if !has_ended || self.undo_call().is_some_and(|undo| undo.id == call_id) {
            return false;
        }
        let last = self.messages.iter().rev().find_map(Message::as_assistant);
        last.is_some_and(|message| message.tool_calls.iter().any(|call| call.id == call_id))
    }

    /// The answer of a run that is [`Done`](crate::Step::Done).
    ///
    /// # Errors
    ///
    /// The run ended without an answer, or is not done yet.
    pub fn finish(mut self) -> Result<Answer, RunError> {
        let (finish_reason, text, refusal) = match &self.stage {
            Stage::Answered(finish_reason) => match self.messages.last() {
                Some(Message::Assistant(last)) => {
                    (finish_reason.clone(), last.text.clone(), last.refusal.clone())
                }
                _ => (finish_reason.clone(), String::new(), None),
            },
            Stage::Returned(_) => (FinishReason::ToolCalls, self.answer_text().unwrap_or_default(), None),
            Stage::Ended(ending) => return Err(RunError::new(Kind::Ended(ending.clone()), self)),
            Stage::Asking | Stage::Calling(_) | Stage::Undoing { .. } => {
                return Err(RunError::new(Kind::StepError(StepError("to finish before it is done")), self));
            }
        };
        let messages = self.messages.split_off(self.given);
        Ok(Answer {
            text,
            refusal,
            finish_reason,
            tool_executions: self.tool_executions,
            usage: self.usage,
            turns: self.turns,
            messages,
        })
    }
}
