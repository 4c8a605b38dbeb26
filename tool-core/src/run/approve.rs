//! Calls that a person has to approve.
//!
//! An approval is bound to a hash of the tool's definition, because a server can change its tools while a run waits. The record of a call
//! has the level that demands its approval, because another process must know whose decider may give it.

use super::amendment::Amendment;
use super::approval::Approval;
use super::call_state::{ApprovalScope, CallState};
use super::state::{CallRecord, Fact, Run, Stage};
use super::step_error::{FULL, StepError};
use super::user_message::{MessageVolume, UserMessage};
use super::wait::{Author, Decision, Wait, WaitReason};
use crate::model::ToolCall;
use crate::tool::{ToolError, ToolExecution};

/// Why a run takes no message.
const ENDED: &str = "the run has ended and takes no more messages";

pub(super) fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// Why calls are denied that a user did not decide about.
pub(crate) const SAID_INSTEAD: &str = "the user sent another message instead";

impl Run {
    /// Returns `true` if every open call waits, or if the run waits before its next turn.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        matches!(&self.stage, Stage::Calling(turn) if !turn.unfinished().iter().any(CallRecord::is_ready))
            || self.awaits_tools()
    }

    /// Returns `true` if all open calls wait, and only for points in time.
    pub(super) fn is_parked(&self) -> bool {
        let Stage::Calling(turn) = &self.stage else { return false };
        turn.unfinished().iter().filter(|record| record.is_open()).all(CallRecord::is_parked)
    }

    /// Returns `true` if the next step executes calls.
    pub(crate) fn is_to_execute_calls(&self) -> bool {
        matches!(self.stage, Stage::Calling(_) | Stage::Undoing(_)) && !self.is_blocked()
    }

    /// Returns the calls without an outcome, in their order.
    pub(crate) fn open_calls(&self) -> Vec<ToolCall> {
        self.calls_with_records()
            .filter(|(_, record)| record.is_open())
            .map(|(call, _)| call.clone())
            .collect()
    }

    /// Makes an open call await approval, whatever the policy of its tool. A call that was approved or awaits its result from
    /// the caller stays as it is.
    ///
    /// # Errors
    ///
    /// Fails if there is no such open call, if it was already started, or if it undoes another call.
    pub fn require_approval(&mut self, call_id: &str) -> Result<(), StepError> {
        if self.is_undoing() {
            return Err(StepError("a call that undoes another needs no approval"));
        }
        let record = self.open_record(call_id)?;
        // A denial states that the call was not executed.
        if record.has_begun() {
            return Err(StepError("the call has already been started"));
        }
        record.require_approval();
        Ok(())
    }

    /// Returns the hash of the definition to which an approval of the call with this path is bound.
    pub(crate) fn definition_to_approve(&mut self, path: &str) -> Option<String> {
        let (run, id) = self.call_at(path, CallRecord::awaits_approval).ok()?;
        match &run.record(id)?.state {
            CallState::AwaitingApproval(ApprovalScope::Definition(hash)) => Some(hash.clone()),
            _ => None,
        }
    }

    /// Records a decision about a call of this run that awaits approval, and who made it.
    pub(super) fn decide_approval(
        &mut self,
        call_id: &str,
        approval: Approval,
        mut author: Author,
    ) -> Result<(), StepError> {
        let position = self.call_position(call_id);
        if matches!(&approval, Approval::ApproveWith(arguments) if !is_object(arguments)) {
            return Err(StepError("the new arguments are not a JSON object"));
        }
        if !self.open_record(call_id)?.awaits_approval() {
            return Err(StepError("the call does not await approval"));
        }
        if let Approval::Deny(reason) = &approval {
            author.why = author.why.or_else(|| reason.clone());
        }
        let call = position.and_then(|position| self.calls().get(position)).cloned();
        let (Some(call), Some(wait)) = (call, self.wait_of(call_id)) else { return Ok(()) };
        self.record_decision(call_id, wait, Decision::from(approval.clone()).kind(), author);
        let record = self.open_record(call_id)?;
        match approval {
            Approval::Defer => {}
            Approval::Approve => record.approve(),
            Approval::ApproveWith(arguments) => {
                record.approve();
                record.has_checked_arguments = false;
                record.history.original_arguments.get_or_insert(call.arguments);
                // The model later reads the arguments that were executed.
                let call = position.unwrap_or_default();
                self.amend(Amendment::Arguments { call, arguments, is_rewritten: false });
            }
            Approval::Deny(reason) => {
                let denied = ToolExecution::new(call, Err(ToolError::denied(reason.as_deref())));
                return self.finish_call(call_id, denied);
            }
        }
        Ok(())
    }

    /// Makes approved calls await approval again whose new arguments are refused, with the arguments of the model. Returns the first
    /// refusal.
    pub(crate) fn refuse_new_arguments(
        &mut self,
        check: impl Fn(&ToolCall) -> Result<(), ToolError>,
    ) -> Option<ToolError> {
        let Stage::Calling(turn) = &mut self.stage else { return None };
        let (mut first, mut refused) = (None, Vec::new());
        for (position, (call, record)) in self.history.last_calls().iter().zip(&mut turn.calls).enumerate() {
            let is_unchecked = record.is_approved_with_changes() && !record.has_checked_arguments;
            record.has_checked_arguments |= is_unchecked;
            if is_unchecked
                && let Err(error) = check(call)
                && let Some(original) = record.refuse_approval()
            {
                record.is_touched = true;
                refused.push((position, original));
                first.get_or_insert(error);
            }
        }
        for (call, arguments) in refused {
            self.amend(Amendment::Arguments { call, arguments, is_rewritten: false });
        }
        first
    }

    /// Adds a message of the user to a run that is not done. Calls that await approval are denied, and questions of tools are declined;
    /// other open calls are executed, and the message follows their results. With [`say`](Self::say), what the run waits for stays open.
    ///
    /// # Errors
    ///
    /// Fails if the run has ended: the message is then a new question. Also fails if the message is too long, or if the run has
    /// [too many](MessageVolume).
    pub fn deny_and_say(&mut self, message: impl Into<UserMessage>) -> Result<(), StepError> {
        if self.is_done() {
            return Err(StepError(ENDED));
        }
        self.say(message)?;
        let instead = Decision::deny(SAID_INSTEAD);
        let is_decided = |wait: &Wait| matches!(wait.reason, WaitReason::Approval(_) | WaitReason::Answer(_));
        for wait in self.waits().iter().filter(|wait| is_decided(wait)) {
            // Fails if an earlier decision ended the run.
            let _ = self.resolve(&wait.id, instead.clone());
        }
        Ok(())
    }

    /// Adds a message of the user to a run that works. It follows the results of the open calls; what the run waits for stays open, unlike
    /// with [`deny_and_say`](Self::deny_and_say), which takes the message for the reply to it. A run that has an answer asks the
    /// model again, unless it has reached its last turn.
    ///
    /// ```
    /// use tool_core::Message;
    /// use tool_core::model::{AssistantMessage, ChatResponse};
    /// use tool_core::run::Run;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut run = Run::new([Message::user("Plan a trip")]);
    /// run.record_response(ChatResponse::new(AssistantMessage::text("To Rome?")))?;
    /// run.say("By train, please")?;
    /// assert_eq!(run.messages()[2].text(), "By train, please");
    /// assert!(!run.is_done());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the run has ended: the message is then a new question. Also fails if the message is too long, or if the run has
    /// [too many](MessageVolume).
    pub fn say(&mut self, message: impl Into<UserMessage>) -> Result<(), StepError> {
        let message = message.into();
        if !self.takes_messages() {
            return Err(StepError(ENDED));
        }
        if !self.message_volume().takes(&message) {
            return Err(StepError(FULL));
        }
        self.add_posted_message(message)
    }

    /// Adds a message of the user that was taken for the run when it was posted, so that it must not be lost.
    ///
    /// # Errors
    ///
    /// Fails if the run has ended.
    pub(crate) fn add_posted_message(&mut self, message: UserMessage) -> Result<(), StepError> {
        if !self.takes_messages() {
            return Err(StepError(ENDED));
        }
        self.count_message_bytes(message.bytes());
        match &mut self.stage {
            Stage::Calling(turn) => turn.user_messages.push(message),
            _ => {
                self.stage = Stage::Asking;
                self.append(Fact::Said(message));
            }
        }
        Ok(())
    }

    pub(crate) fn count_message_bytes(&mut self, bytes: usize) {
        self.head.message_bytes = self.head.message_bytes.saturating_add(bytes);
        self.touch();
    }

    /// Returns how much users have sent to the run in messages. What is in its inbox is not part of it.
    #[must_use]
    pub fn message_volume(&self) -> MessageVolume {
        let unread = match &self.stage {
            Stage::Calling(turn) => &*turn.user_messages,
            _ => &[],
        };
        let unread_bytes = unread.iter().map(UserMessage::bytes).sum();
        MessageVolume { unread: unread.len(), unread_bytes, bytes: self.head.message_bytes }
    }

    /// Returns who sent the message of a user at this position among the [new messages](Self::new_messages), if it is known.
    #[must_use]
    pub fn sender_of(&self, position: usize) -> Option<&str> {
        let senders = self.history.senders();
        let found = senders.binary_search_by_key(&position, |(position, _)| *position).ok()?;
        senders.get(found).map(|(_, by)| &**by)
    }

    /// Returns `true` if the user can [say](Self::say) something.
    pub(crate) fn takes_messages(&self) -> bool {
        match self.stage {
            Stage::Asking | Stage::Calling(_) => true,
            // A finished run is stored only for its readers.
            Stage::Answered(_) | Stage::Returned { .. } => {
                !self.is_last_turn() && !self.head.stored.is_finished
            }
            Stage::Undoing(_) | Stage::Ended(_) => false,
        }
    }
}
