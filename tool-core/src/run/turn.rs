//! The calls of one turn.

use super::state::{CallRecord, Turn};
use super::user_message::UserMessage;
use crate::model::ReturnDirect;
use crate::tool::ToolExecution;

impl Turn {
    pub(super) fn new(calls: Vec<CallRecord>, user_messages: Vec<UserMessage>) -> Self {
        Self { calls, user_messages, finished: 0 }
    }

    pub(super) fn is_finished(&mut self) -> bool {
        self.finished += self.calls[self.finished..].iter().take_while(|one| !one.is_open()).count();
        self.finished == self.calls.len()
    }

    /// Returns the records of the calls that can be open.
    pub(super) fn unfinished(&self) -> &[CallRecord] {
        &self.calls[self.finished..]
    }

    /// Returns the positions of the calls whose outputs are the answer; none if the model is called again.
    pub(super) fn answer_positions(&self) -> Vec<usize> {
        self.answer_positions_unless(|one| one.outcome().and_then(ToolExecution::output).is_none())
    }

    /// Returns `true` if the turn has an answer, provided that all open calls succeed.
    pub(super) fn can_still_answer(&self) -> bool {
        !self
            .answer_positions_unless(|one| one.outcome().is_some_and(|one| one.outcome().is_err()))
            .is_empty()
    }

    fn answer_positions_unless(&self, has_failed: fn(&CallRecord) -> bool) -> Vec<usize> {
        let positions = |is_answer: &dyn Fn(&CallRecord) -> bool| -> Vec<usize> {
            let found = self.calls.iter().enumerate().filter(|(_, one)| is_answer(one));
            found.map(|(position, _)| position).collect()
        };
        if !self.user_messages.is_empty() || self.calls.is_empty() {
            return Vec::new();
        }
        let always = positions(&|one| one.return_direct() == ReturnDirect::Always && !has_failed(one));
        if !always.is_empty() {
            return always;
        }
        let direct = positions(&|one| one.return_direct() != ReturnDirect::Never && !has_failed(one));
        let any_failed = self.calls.iter().any(has_failed);
        if direct.len() == self.calls.len() {
            direct
        } else if !any_failed
            && self.calls.last().is_some_and(|one| one.return_direct() == ReturnDirect::IfLast)
        {
            vec![self.calls.len() - 1]
        } else {
            Vec::new()
        }
    }
}
