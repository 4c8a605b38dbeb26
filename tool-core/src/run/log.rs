//! The log of a run: the only writer of its history and of the outcomes of its calls.
//!
//! What has happened in a run is a log of facts, and `apply` alone writes `messages`, executions and outcomes (`history`), because a save
//! must cost the same in the eight hundredth turn as in the tenth. A run records facts only once others have its state: without a store,
//! nothing is copied.
//!
//! Some facts change nothing: they are for readers of the log (`reader`), such as that a call has begun.
//!
//! The end of a turn is an entry (`Closed`), because results join the messages in the order of the calls, and calls that were never started
//! have a result and no execution.

use std::sync::atomic::{AtomicU64, Ordering};

use super::amendment::Amendment;
use super::call_state::CallState;
use super::state::{CallRecord, Fact, LogEntry, Run, Stage, Turn};
use crate::model::{Message, ReturnDirect};
use crate::tool::{ToolError, ToolExecution};

/// The number of entries that the runs of this process have recorded.
static ENTRIES: AtomicU64 = AtomicU64::new(0);

impl Run {
    /// Records what has happened.
    pub(super) fn append(&mut self, fact: Fact) {
        if let Some(recording) = &mut self.recording {
            let number = ENTRIES.fetch_add(1, Ordering::Relaxed);
            recording.entries.push(LogEntry { time: self.now, fact: fact.clone(), number });
            recording.is_touched = true;
        }
        self.apply(fact);
    }

    /// Records a change of what has happened.
    pub(super) fn amend(&mut self, amendment: Amendment) {
        self.append(Fact::Amended(amendment));
    }

    /// Notes that something else than the history may have changed.
    pub(crate) fn touch(&mut self) {
        if let Some(recording) = &mut self.recording {
            recording.is_touched = true;
        }
    }

    /// Changes the history and the outcomes as a fact states. What else follows from it is decided by the rules.
    fn apply(&mut self, fact: Fact) {
        match fact {
            Fact::Remembered(messages) => {
                (self.cache, self.call_index) = Default::default();
                self.history.remember(messages);
            }
            Fact::Replied(message) => {
                if self.head.shown.request.turn > 0 {
                    self.head.shown.added = self.new_messages().len();
                }
                let calls = message.tool_calls.len();
                self.history.add_message(Message::Assistant(message));
                if calls > 0 {
                    self.stage = Stage::Calling(Turn::new(vec![CallRecord::default(); calls], Vec::new()));
                }
            }
            Fact::Finished(execution) => self.set_outcome(execution),
            Fact::Retried { call, is_inner_done, .. } => {
                // A run that has not ended is continued.
                let inner = self.open_record(&call).ok().filter(|_| is_inner_done);
                let inner = inner.and_then(|record| record.inner.take());
                self.inner_runs.extend(inner.map(|inner| *inner));
            }
            Fact::Began(mut inner) => {
                if self.recording.is_some() {
                    inner.run.record_changes(0);
                }
                if let Ok(record) = self.open_record(&inner.call_id) {
                    record.inner = Some(inner);
                }
            }
            Fact::Closed(why) => self.close(&why),
            Fact::Said(message) => self.history.add_user_message(message),
            Fact::Rejected(why) => self.history.add_user_message(why.into()),
            Fact::Undone(execution) => self.history.add_undo_execution(*execution),
            Fact::Judged(verdict) => self.history.add_verdict(verdict),
            Fact::Opened(tools) => self.history.set_given_tools(tools),
            Fact::Found(names) => self.history.add_found_tools(names),
            Fact::Offered(tools) => self.history.set_offered(tools),
            Fact::Compacted(compaction) => {
                self.call_index = None;
                self.history.add_compaction(*compaction);
            }
            Fact::Cached(cache) => self.history.add_cache_use(cache),
            Fact::Amended(Amendment::Result(execution)) if matches!(self.stage, Stage::Calling(_)) => {
                self.set_outcome(execution);
            }
            Fact::Amended(amendment) => {
                if let Amendment::Question { .. } | Amendment::Instructions { .. } = &amendment {
                    (self.cache, self.call_index) = Default::default();
                }
                self.history.amend(amendment);
            }
            Fact::Asked(request) => {
                self.head.shown.request = request;
                self.head.shown.held_back.clear();
            }
            Fact::AnswerJudged => self.head.shown.held_back.clear(),
            Fact::Heard => self.head.shown.added = self.new_messages().len(),
            Fact::Layered(sees) => self.head.shown.sees = sees,
            Fact::Completed(_)
            | Fact::Started { .. }
            | Fact::Decided(_)
            | Fact::HandedOff(_)
            | Fact::Charged(_)
            | Fact::MayBeAnswer(_)
            | Fact::Rested => {}
        }
    }

    fn set_outcome(&mut self, execution: Box<ToolExecution>) {
        let position = self.call_position(&execution.call.id);
        if let (Stage::Calling(turn), Some(position)) = (&mut self.stage, position)
            && let Some(record) = turn.calls.get_mut(position)
        {
            (record.state, record.mark, record.to_judge) = (CallState::Finished(execution), None, None);
            record.is_touched = true;
        }
    }

    fn close(&mut self, why_not_executed: &str) {
        let Stage::Calling(mut turn) = std::mem::replace(&mut self.stage, Stage::Asking) else { return };
        let calls = self.history.last_calls();
        if self.head.shown.sees.answers {
            let is_held =
                |record: &CallRecord| !record.is_open() && record.return_direct() != ReturnDirect::Never;
            let held = calls.iter().zip(&turn.calls).filter(|(_, record)| is_held(record));
            self.head.shown.held_back = held.map(|(call, _)| call.id.clone()).collect();
        }
        if let Some(recording) = &mut self.recording {
            recording.closed_calls.extend(calls.iter().map(|call| call.id.clone()));
        }
        let results = calls.iter().zip(&turn.calls).map(|(call, record)| match record.outcome() {
            Some(execution) => Message::tool(call, &execution.outcome),
            None => Message::tool(call, &Err(ToolError::not_executed(why_not_executed))),
        });
        let results: Vec<_> = results.collect();
        let inner = turn.calls.iter_mut().filter_map(|record| record.inner.take());
        self.inner_runs.extend(inner.map(|inner| *inner));
        let executions = turn.calls.into_iter().filter_map(|record| match record.state {
            CallState::Finished(execution) => Some(*execution),
            _ => None,
        });
        self.history.close(results, executions);
    }
}
