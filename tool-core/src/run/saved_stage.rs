//! The stages of a run and the records of its calls, in the forms of all formats.

use serde::Deserialize;

use super::call_state::{ApprovalScope, CallState};
use super::state::{CallRecord, Memo, Rewriters, Stage, Turn};
use crate::content::Content;
use crate::model::{FinishReason, Message, ReturnDirect, ToolKind, ToolPolicy};
use crate::run::{InnerRun, Run, StopReason};
use crate::tool::{CallNotes, DecisionRecord, Timestamp, ToolExecution, VerdictRecord};

/// The stage of a run since format 2.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SavedStage {
    Asking,
    Calling {
        calls: Vec<SavedRecord>,
        #[serde(rename = "said", default)]
        user_messages: Vec<Content>,
    },
    Answered(FinishReason),
    Returned(Vec<usize>),
    Undoing {
        #[serde(rename = "ending")]
        reason: StopReason,
        #[serde(rename = "standing")]
        record: Box<SavedRecord>,
    },
    Ended(StopReason),
}

/// The record of a call since format 2.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct SavedRecord {
    policy: Option<SavedPolicy>,
    undo: Option<String>,
    #[serde(rename = "asked")]
    original_arguments: Option<String>,
    is_uncertain: bool,
    is_left_to_caller: bool,
    approval_level: usize,
    #[serde(rename = "agent")]
    inner: Option<Box<InnerRun>>,
    // Since format 3.
    state: Option<CallState>,
    // Since format 4.
    kind: Option<ToolKind>,
    notes: Option<Box<CallNotes>>,
    since: Option<Timestamp>,
    decisions: Vec<DecisionRecord>,
    verdicts: Vec<VerdictRecord>,
    #[serde(rename = "final")]
    rewriters: Option<Rewriters>,
    // Format 2 only.
    #[serde(rename = "leave")]
    approval: Format2Approval,
    definition: Option<String>,
    attempts: u32,
    #[serde(rename = "is_begun")]
    is_started: bool,
    outcome: Option<ToolExecution>,
}

/// A policy, with what the kind of the tool states since format 4.
#[derive(Deserialize)]
struct SavedPolicy {
    #[serde(flatten)]
    policy: ToolPolicy,
    #[serde(default)]
    external: bool,
    #[serde(default)]
    hands_over: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Format2Approval {
    #[default]
    NotNeeded,
    Waiting,
    Given,
}

impl SavedRecord {
    fn into_record(mut self, format: u32) -> Result<CallRecord, &'static str> {
        let outcome = self.outcome.take();
        let state = match self.state.take() {
            Some(state) if format > 2 => state,
            None if format == 2 => self.format_2_state()?,
            _ => return Err("a call has no state"),
        };
        let is_waiting = matches!(state, CallState::Waiting { .. });
        if is_waiting && self.notes.is_none() {
            return Err("a call waits for nothing");
        }
        let Self { policy, undo, original_arguments, is_uncertain, is_left_to_caller, .. } = self;
        let Self { approval_level, inner, notes, kind, since, decisions, .. } = self;
        let Self { verdicts, rewriters, .. } = self;
        let kind = kind.or_else(|| match &policy {
            Some(SavedPolicy { external: true, .. }) => Some(ToolKind::Caller),
            Some(SavedPolicy { hands_over: true, .. }) => Some(ToolKind::Handoff),
            _ => inner.as_ref().map(|_| ToolKind::Agent),
        });
        let mut record = CallRecord {
            policy: policy.map(|saved| saved.policy),
            kind,
            undo,
            original_arguments,
            is_uncertain,
            is_left_to_caller,
            approval_level,
            memo: inner.map(Memo::Inner).or(notes.map(Memo::Notes)),
            since,
            decisions,
            verdicts,
            rewriters,
            state,
        };
        if let Some(outcome) = outcome {
            record.state = CallState::Finished(Box::new(record.complete(outcome)));
        }
        Ok(record)
    }

    /// Returns the state of an open call of format 2.
    fn format_2_state(&self) -> Result<CallState, &'static str> {
        let attempts = self.attempts;
        let asked = match self.definition.as_deref() {
            None => ApprovalScope::Unbound,
            Some("") => ApprovalScope::NoTool,
            Some(hash) => ApprovalScope::Definition(hash.to_owned()),
        };
        let approved = (self.approval == Format2Approval::Given).then(|| asked.clone());
        match self.approval {
            Format2Approval::Waiting if self.is_started || attempts > 0 => {
                Err("a call awaits approval although it was started")
            }
            Format2Approval::Waiting => Ok(CallState::AwaitingApproval(asked)),
            _ if self.is_started => Ok(CallState::Running { attempt: attempts, approved }),
            _ => Ok(CallState::Ready { attempts, approved }),
        }
    }
}

impl SavedStage {
    /// Returns the stage of a run whose other fields are restored.
    pub(super) fn into_stage(self, run: &Run, format: u32) -> Result<Stage, &'static str> {
        Ok(match self {
            Self::Asking => Stage::Asking,
            Self::Calling { calls, user_messages } => {
                let calls =
                    calls.into_iter().map(|record| record.into_record(format)).collect::<Result<_, _>>()?;
                Stage::Calling(Turn::new(calls, user_messages))
            }
            Self::Answered(reason) => Stage::Answered(reason),
            Self::Returned(positions) => Stage::Returned(positions),
            Self::Undoing { reason, record } => {
                let record = record.into_record(format)?;
                run.restored_undoing(reason, record).ok_or("no call is left to undo")?
            }
            Self::Ended(reason) => Stage::Ended(reason),
        })
    }
}

#[derive(Deserialize)]
pub(super) struct Format1Execution {
    #[serde(flatten)]
    pub(super) execution: ToolExecution,
    #[serde(default)]
    returns_direct: bool,
}

/// The stage of a run in format 1.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Format1Stage {
    Asking,
    Calling(Vec<Option<Format1Execution>>),
    Answered(FinishReason),
    Returned,
    OutOfTurns,
    CutShort(FinishReason),
}

impl Format1Stage {
    pub(super) fn into_stage(self, run: &Run) -> Stage {
        let messages = run.messages();
        match self {
            Self::Asking => Stage::Asking,
            Self::Calling(outcomes) => {
                let record = |outcome: Option<Format1Execution>| {
                    let mut policy = ToolPolicy::default();
                    if outcome.as_ref().is_some_and(|saved| saved.returns_direct) {
                        policy.return_direct = ReturnDirect::IfAll;
                    }
                    let policy = outcome.is_some().then_some(policy);
                    let finished = outcome.map(|saved| CallState::Finished(Box::new(saved.execution)));
                    CallRecord { policy, state: finished.unwrap_or_default(), ..CallRecord::default() }
                };
                let calls = outcomes.into_iter().map(record).collect();
                Stage::Calling(Turn::new(calls, Vec::new()))
            }
            Self::Answered(reason) => Stage::Answered(reason),
            Self::Returned => {
                let results = messages.iter().rev().take_while(|one| matches!(one, Message::Tool(_))).count();
                Stage::Returned((messages.len() - results..messages.len()).collect())
            }
            Self::OutOfTurns => Stage::Ended(StopReason::MaxTurns(run.limits().max_turns)),
            Self::CutShort(reason) => Stage::Ended(StopReason::Truncated(reason)),
        }
    }
}
