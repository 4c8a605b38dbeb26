//! The calls of one turn, and where each of them stands.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::content::Content;
use crate::model::{ReturnDirect, ToolCall, ToolDefinitions, ToolPolicy};
use crate::tool::{ToolError, ToolErrorKind, ToolExecution};

/// The calls of the last message, in its order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Turn {
    pub(super) calls: Vec<Standing>,
    /// What the user said while the calls were open; it comes behind their results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) said: Vec<Content>,
}

/// Where one call stands.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Standing {
    /// What its tool says of it, once the run was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) policy: Option<ToolPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) undo: Option<String>,
    #[serde(skip_serializing_if = "Leave::is_not_needed")]
    pub(super) leave: Leave,
    /// The model's arguments, if a person changed them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) asked: Option<String>,
    /// How often it was begun.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) attempts: u32,
    /// It was begun, and nothing came of it yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_begun: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outcome: Option<ToolExecution>,
}

/// Leaves arguments out.
impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standing")
            .field("policy", &self.policy)
            .field("leave", &self.leave)
            .field("attempts", &self.attempts)
            .field("is_begun", &self.is_begun)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

/// Whether a person has to approve a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Leave {
    #[default]
    NotNeeded,
    Waiting,
    Given,
}

impl Leave {
    fn is_not_needed(&self) -> bool {
        *self == Self::NotNeeded
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Standing {
    pub(super) fn is_open(&self) -> bool {
        self.outcome.is_none()
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.is_open() && self.leave == Leave::Waiting
    }

    pub(super) fn is_ready(&self) -> bool {
        self.is_open() && self.leave != Leave::Waiting
    }

    pub(super) fn returns(&self) -> ReturnDirect {
        self.policy.map_or(ReturnDirect::Never, |policy| policy.return_direct)
    }

    pub(super) fn has_failed(&self) -> bool {
        self.outcome.as_ref().is_none_or(|execution| execution.outcome().is_err())
    }

    /// It was begun and interrupted, and must not be made again.
    pub(super) fn is_lost(&self) -> bool {
        self.is_open() && self.is_begun && self.policy.is_some_and(|policy| policy.at_most_once)
    }

    /// Which attempt is under way, also when nobody said that it began.
    pub(super) fn attempt(&self) -> u32 {
        self.attempts.saturating_add(u32::from(!self.is_begun))
    }

    /// A failure after which the call is made again. Nobody knows the outcome of one that took too long.
    pub(super) fn is_worth_another_attempt(&self, error: &ToolError) -> bool {
        let (allowed, at_most_once) =
            self.policy.map_or((1, false), |policy| (policy.attempts, policy.at_most_once));
        let may_be_made_again = match error.kind() {
            ToolErrorKind::Failed => true,
            ToolErrorKind::TimedOut => !at_most_once,
            _ => false,
        };
        may_be_made_again && !error.is_fatal() && self.attempt() < allowed
    }

    /// Takes in what the tool of an open call says of it, and settles what needs no tool.
    pub(super) fn settle(&mut self, call: &ToolCall, tools: &ToolDefinitions, made: &[ToolExecution]) {
        if self.policy.is_none()
            && let Some(definition) = tools.iter().find(|definition| definition.name() == call.name)
        {
            self.policy = Some(definition.policy());
            self.undo = definition.undo().map(str::to_owned);
        }
        let Some(policy) = self.policy else { return };
        let same =
            || made.iter().rev().filter(|one| one.was_executed_as(call)).find_map(ToolExecution::output);
        if let Some(output) = if policy.pure { same() } else { None } {
            self.outcome = Some(ToolExecution::new(call.clone(), Ok(output.clone())).into_reused());
        } else if self.is_lost() {
            self.outcome = Some(ToolExecution::new(call.clone(), Err(ToolError::outcome_unknown())));
        } else if policy.needs_approval && self.leave == Leave::NotNeeded {
            self.leave = Leave::Waiting;
        }
    }
}

impl Turn {
    pub(super) fn is_over(&self) -> bool {
        self.calls.iter().all(|one| !one.is_open())
    }

    /// The calls whose outputs are the answer, by position: none if the model is to be asked again.
    pub(super) fn answering(&self) -> Vec<usize> {
        self.answering_unless(Standing::has_failed)
    }

    /// There is an answer among the outputs if all calls that are open succeed.
    pub(super) fn may_answer(&self) -> bool {
        !self.answering_unless(|one| !one.is_open() && one.has_failed()).is_empty()
    }

    fn answering_unless(&self, has_failed: fn(&Standing) -> bool) -> Vec<usize> {
        let positions = |is_answer: &dyn Fn(&Standing) -> bool| -> Vec<usize> {
            let found = self.calls.iter().enumerate().filter(|(_, one)| is_answer(one));
            found.map(|(position, _)| position).collect()
        };
        if !self.said.is_empty() || self.calls.is_empty() {
            return Vec::new();
        }
        let ending = positions(&|one| one.returns() == ReturnDirect::Always && !has_failed(one));
        if !ending.is_empty() {
            return ending;
        }
        let returning = positions(&|one| one.returns() != ReturnDirect::Never && !has_failed(one));
        let has_failures = self.calls.iter().any(has_failed);
        if returning.len() == self.calls.len() {
            returning
        } else if !has_failures && self.calls.last().is_some_and(|one| one.returns() == ReturnDirect::IfLast)
        {
            vec![self.calls.len() - 1]
        } else {
            Vec::new()
        }
    }
}
