//! The serialized form of a run.
//!
//! It is compact: it does not repeat what the messages contain, and leaves out tool definitions.

use std::collections::HashSet;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::call_index::CallIndex;
use super::call_state::CallState;
use super::compaction::CompactionRecord;
use super::history::History;
use super::revision::Format;
use super::shared_cache::SharedCache;
use super::shared_vec::SharedVec;
use super::state::{CallRecord, Driving, GivenUp, Head, Recording, Stage};
use crate::model::{Message, ToolCall};
use crate::run::{InnerRun, Run, RunId};
use crate::tool::timing::micros;
use crate::tool::{Timestamp, ToolExecution};

/// The fields of a run as they are stored.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Run")]
struct SavedRun {
    format: Format,
    id: RunId,
    head: Head,
    history: History,
    #[serde(rename = "time", with = "micros", default, skip_serializing_if = "Duration::is_zero")]
    elapsed: Duration,
    #[serde(skip)]
    now: Timestamp,
    #[serde(rename = "agents", default, skip_serializing_if = "<[_]>::is_empty")]
    inner_runs: SharedVec<InnerRun>,
    stage: Stage,
    #[serde(skip)]
    recording: Option<Box<Recording>>,
    #[serde(skip)]
    cache: SharedCache,
    #[serde(skip)]
    call_index: Option<Box<CallIndex>>,
    #[serde(skip)]
    given_up: Vec<GivenUp>,
    #[serde(skip)]
    driving: Option<Box<Driving>>,
}

impl Serialize for Run {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        SavedRun::serialize(self, serializer)
    }
}

/// Checks the state, because the input is untrusted.
impl<'de> Deserialize<'de> for Run {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut run = SavedRun::deserialize(deserializer)?;
        let checked = run.complete().and_then(|()| run.check());
        let inconsistent =
            |why| D::Error::custom(format_args!("the state of the run is inconsistent: {why}"));
        checked.map(|()| run).map_err(inconsistent)
    }
}

impl Run {
    /// Adds what is not stored, because it follows from the rest.
    fn complete(&mut self) -> Result<(), &'static str> {
        let missing = "a finished call is missing from the messages, or recorded twice";
        self.history.restore_executions().ok_or(missing)?;
        self.restore_undoing().ok_or("no call is left to undo")
    }

    /// Checks the invariants that the rules rely on.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let ensure = |is_valid, why| if is_valid { Ok(()) } else { Err(why) };
        let (calls, messages) = (self.calls(), self.messages());
        match &self.stage {
            Stage::Calling(turn) => {
                let has_same_id = |(call, record): (&ToolCall, &CallRecord)| {
                    record.outcome().is_none_or(|execution| execution.call().id == call.id)
                };
                // The id ties an outcome to its call.
                let ids: HashSet<_> = calls.iter().map(|call| &call.id).collect();
                let is_known = |execution: &ToolExecution| ids.contains(&execution.call.id);
                let waits = |record: &CallRecord| matches!(record.state, CallState::Waiting { .. });
                let waits_for_nothing = |record: &CallRecord| waits(record) && record.notes.is_none();
                ensure(
                    turn.calls.len() == calls.len(),
                    "the calls of the turn differ from the calls of the last message",
                )?;
                ensure(ids.len() == calls.len(), "two calls of a turn have one id")?;
                ensure(
                    !self.tool_executions().iter().any(is_known),
                    "a call of the turn has the id of an earlier call",
                )?;
                ensure(turn.calls.iter().any(CallRecord::is_open), "no call of the turn is open")?;
                ensure(calls.iter().zip(&turn.calls).all(has_same_id), "a call has the outcome of another")?;
                ensure(!turn.calls.iter().any(waits_for_nothing), "a call waits for nothing")?;
            }
            Stage::Asking => ensure(calls.is_empty(), "the last message has calls that nobody executes")?,
            Stage::Answered(_) => {
                ensure(matches!(messages.last(), Some(Message::Assistant(_))), "the answer is missing")?;
            }
            Stage::Returned { positions, .. } => {
                let is_result = |position: &usize| matches!(messages.get(*position), Some(Message::Tool(_)));
                ensure(!positions.is_empty() && positions.iter().all(is_result), "the answer is missing")?;
            }
            Stage::Undoing(undoing) => {
                ensure(undoing.record.is_ready(), "a call that undoes another waits")?;
            }
            Stage::Ended(_) => {}
        }
        ensure(self.history.given() <= messages.len(), "the history has more messages than the run")?;
        let is_whole =
            |at: usize| at <= messages.len() && !matches!(messages.get(at), Some(Message::Tool(_)));
        let is_inside = |one: &CompactionRecord| {
            one.unreasoned <= messages.len()
                && one.cleared.iter().chain(&one.emptied).all(|position| *position < messages.len())
                && is_whole(one.hidden)
                && one.by_provider.as_ref().is_none_or(|summary| is_whole(summary.note.0))
        };
        ensure(
            self.compactions().iter().all(is_inside),
            "a compaction ends inside a turn or behind the messages",
        )?;
        let why = "the run of an agent belongs to no call that was started";
        ensure(self.has_consistent_inner_runs(), why)
    }
}
