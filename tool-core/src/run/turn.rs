//! The calls of one turn and the state of each.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::content::Content;
use crate::model::{ReturnDirect, ToolCall, ToolDefinition, ToolDefinitions, ToolPolicy};
use crate::tool::{ToolError, ToolErrorKind, ToolExecution};

/// The state of the calls of the last message, in its order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Turn {
    pub(super) calls: Vec<CallRecord>,
    /// User messages that arrived while calls were open. They are added after the results of the calls.
    #[serde(rename = "said", default, skip_serializing_if = "Vec::is_empty")]
    pub(super) user_messages: Vec<Content>,
}

/// The state of one call.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct CallRecord {
    /// The policy of the call's tool, once the run has seen its definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) policy: Option<ToolPolicy>,
    /// The name of the tool that undoes the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) undo: Option<String>,
    #[serde(rename = "leave", skip_serializing_if = "ApprovalStatus::is_not_needed")]
    pub(super) approval: ApprovalStatus,
    /// The hash of the definition of the call's tool when approval was asked for.
    #[serde(rename = "definition", skip_serializing_if = "Option::is_none")]
    pub(super) definition_hash: Option<String>,
    /// The model's arguments, if the approval changed them.
    #[serde(rename = "asked", skip_serializing_if = "Option::is_none")]
    pub(super) original_arguments: Option<String>,
    /// The number of times the call was started.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) attempts: u32,
    /// The call was started and has no outcome yet.
    #[serde(rename = "is_begun", skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_started: bool,
    /// An attempt may have had its effect, although no success was recorded for it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_uncertain: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outcome: Option<ToolExecution>,
}

/// Omits arguments.
impl fmt::Debug for CallRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallRecord")
            .field("policy", &self.policy)
            .field("approval", &self.approval)
            .field("attempts", &self.attempts)
            .field("is_started", &self.is_started)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

/// The approval that a call needs or has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ApprovalStatus {
    #[default]
    NotNeeded,
    #[serde(rename = "waiting")]
    Pending,
    #[serde(rename = "given")]
    Granted,
}

impl ApprovalStatus {
    fn is_not_needed(&self) -> bool {
        *self == Self::NotNeeded
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl CallRecord {
    /// Returns `true` if the call has no outcome yet.
    pub(super) fn is_open(&self) -> bool {
        self.outcome.is_none()
    }

    pub(super) fn awaits_approval(&self) -> bool {
        self.is_open() && self.approval == ApprovalStatus::Pending
    }

    /// Returns `true` if the call can be executed now.
    pub(super) fn is_ready(&self) -> bool {
        self.is_open() && self.approval != ApprovalStatus::Pending
    }

    fn return_direct(&self) -> ReturnDirect {
        self.policy.map_or(ReturnDirect::Never, |policy| policy.return_direct)
    }

    /// Returns `true` if the call is open or has failed.
    fn lacks_output(&self) -> bool {
        self.outcome.as_ref().is_none_or(|execution| execution.outcome().is_err())
    }

    /// Returns `true` if the call was interrupted and must not be executed again.
    pub(super) fn is_outcome_unknown(&self) -> bool {
        self.is_open() && self.is_started && self.policy.is_some_and(|policy| policy.at_most_once)
    }

    /// Returns `true` if the call awaits an attempt that its tool does not allow: fewer are allowed than when it was stored, or
    /// the stored state lacks the outcome or the start of the last one.
    pub(super) fn has_no_attempts_left(&self) -> bool {
        let allowed = self.policy.map_or(1, |policy| policy.attempts);
        self.is_open() && !self.is_started && self.attempts > 0 && self.attempts >= allowed
    }

    /// Returns the number of the running attempt, even if its start was not recorded.
    pub(super) fn current_attempt(&self) -> u32 {
        self.attempts.saturating_add(u32::from(!self.is_started))
    }

    /// Returns `true` if the call may be executed again after this failure. The effect of a call that timed out is unknown.
    pub(super) fn may_retry(&self, error: &ToolError) -> bool {
        let (allowed, at_most_once) =
            self.policy.map_or((1, false), |policy| (policy.attempts, policy.at_most_once));
        let is_repeatable = match error.kind() {
            ToolErrorKind::Failed => true,
            ToolErrorKind::TimedOut => !at_most_once,
            _ => false,
        };
        is_repeatable && !error.is_fatal() && self.current_attempt() < allowed
    }

    /// Returns `true` if the call was started at least once, so that it may have had its effect.
    pub(super) fn has_begun(&self) -> bool {
        self.is_started || self.attempts > 0
    }

    /// Returns `true` if approval can still be required of the call.
    pub(super) fn can_require_approval(&self) -> bool {
        self.is_open() && !self.has_begun() && self.approval == ApprovalStatus::NotNeeded
    }

    /// Applies the policy of the tool as it is now, in addition to the policy under which the call was stored.
    pub(super) fn restrict(&mut self, policy: ToolPolicy) {
        self.policy = Some(self.policy.map_or(policy, |stored| stored.stricter(policy)));
    }

    /// Applies the policy of the tool to an open call, and finishes the call if it needs no execution.
    pub(super) fn settle(&mut self, call: &ToolCall, tools: &ToolDefinitions, finished: &[ToolExecution]) {
        let stored = self.policy;
        let definition = tools.iter().find(|definition| definition.name() == call.name);
        if let Some(definition) = definition {
            self.restrict(definition.policy());
            self.undo = definition.undo().map(str::to_owned).or(self.undo.take());
        } else if self.approval != ApprovalStatus::NotNeeded {
            // An approval that was asked for without a definition holds for none that appears later.
            self.definition_hash.get_or_insert_default();
        }
        let Some(policy) = self.policy else { return };
        let mut same = finished.iter().rev().filter(|one| policy.pure && one.was_executed_as(call));
        if let Some(output) = same.find_map(ToolExecution::output) {
            self.outcome = Some(ToolExecution::new(call.clone(), Ok(output.clone())).into_reused());
        } else if self.is_outcome_unknown() {
            self.outcome = Some(ToolExecution::new(call.clone(), Err(ToolError::outcome_unknown())));
        } else if self.has_no_attempts_left() {
            self.outcome = Some(ToolExecution::new(call.clone(), Err(ToolError::interrupted())));
        } else if policy.needs_approval && self.can_require_approval() {
            self.approval = ApprovalStatus::Pending;
        }
        if let Some(definition) = definition {
            self.bind_approval(call, definition, stored);
        }
    }

    /// Binds the approval of an open call to the definition of its tool. If it was given for another definition, the call
    /// awaits approval again, or counts as interrupted if it was started.
    fn bind_approval(
        &mut self,
        call: &ToolCall,
        definition: &ToolDefinition,
        stored_policy: Option<ToolPolicy>,
    ) {
        if !self.is_open() || self.approval == ApprovalStatus::NotNeeded {
            return;
        }
        let hash = definition.hash();
        let is_other = match &self.definition_hash {
            Some(earlier) => *earlier != hash,
            // States of earlier versions have no hash, but the policy.
            None => stored_policy.is_some_and(|stored| stored != definition.policy()),
        };
        self.definition_hash = Some(hash);
        if !is_other || self.approval != ApprovalStatus::Granted {
            return;
        }
        if self.attempts > 0 {
            self.outcome = Some(ToolExecution::new(call.clone(), Err(ToolError::interrupted())));
        } else {
            self.approval = ApprovalStatus::Pending;
        }
    }
}

impl Turn {
    pub(super) fn is_finished(&self) -> bool {
        self.calls.iter().all(|one| !one.is_open())
    }

    /// Returns the positions of the calls whose outputs are the answer; none if the model is called again.
    pub(super) fn answer_positions(&self) -> Vec<usize> {
        self.answer_positions_unless(CallRecord::lacks_output)
    }

    /// Returns `true` if the turn has an answer, provided that all open calls succeed.
    pub(super) fn can_still_answer(&self) -> bool {
        !self.answer_positions_unless(|one| !one.is_open() && one.lacks_output()).is_empty()
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
