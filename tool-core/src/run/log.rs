//! The log of a run: the only writer of its history and of the outcomes of its calls.

use super::call_state::CallState;
use super::fact::{Amendment, Fact};
use super::state::{CallRecord, Run, Stage, Turn};
use crate::model::Message;
use crate::tool::{ToolError, ToolExecution};

impl Run {
    /// Records what has happened.
    pub(super) fn append(&mut self, fact: Fact) {
        if let Some(recorded) = &mut self.recorded {
            recorded.push(fact.clone());
        }
        self.apply(fact);
    }

    /// Records a change of what has happened.
    pub(super) fn amend(&mut self, amendment: Amendment) {
        self.append(Fact::Amended(amendment));
    }

    /// Records from now on what happens.
    #[doc(hidden)]
    #[cfg(feature = "unstable-internals")]
    pub fn start_recording(&mut self) {
        self.recorded = Some(Vec::new());
    }

    /// Adds what this run has recorded to the history that it had when it started to.
    #[doc(hidden)]
    #[cfg(feature = "unstable-internals")]
    pub fn fold_onto(&self, mut start: Self) -> Self {
        self.recorded.iter().flatten().cloned().for_each(|fact| start.apply(fact));
        start
    }

    /// Changes the history and the outcomes as a fact states. What else follows from it is decided by the rules.
    fn apply(&mut self, fact: Fact) {
        match fact {
            Fact::Replied(message) => {
                let calls = message.tool_calls.len();
                self.history.apply(Fact::Replied(message));
                if calls > 0 {
                    self.stage = Stage::Calling(Turn::new(vec![CallRecord::default(); calls], Vec::new()));
                }
            }
            Fact::Finished(execution) => self.set_outcome(*execution),
            Fact::Amended(Amendment::Result(execution)) if matches!(self.stage, Stage::Calling(_)) => {
                self.set_outcome(*execution);
            }
            Fact::Retried(call) => self.retire_inner_run(&call),
            Fact::Closed(why) => self.close(&why),
            Fact::Remembered(_) | Fact::Amended(Amendment::Instructions { .. }) => {
                (self.cache, self.call_index) = Default::default();
                self.history.apply(fact);
            }
            fact => self.history.apply(fact),
        }
    }

    fn set_outcome(&mut self, execution: ToolExecution) {
        let position = self.call_position(&execution.call.id);
        if let (Stage::Calling(turn), Some(position)) = (&mut self.stage, position)
            && let Some(record) = turn.calls.get_mut(position)
        {
            record.state = CallState::Finished(Box::new(execution));
        }
    }

    fn close(&mut self, why_not_executed: &str) {
        let Stage::Calling(turn) = std::mem::replace(&mut self.stage, Stage::Asking) else { return };
        let (mut results, mut executions) = (Vec::with_capacity(turn.calls.len()), Vec::new());
        for (call, record) in self.history.last_calls().iter().zip(turn.calls) {
            if let Some(inner) = record.inner {
                self.inner_runs.push(*inner);
            }
            results.push(match &record.state {
                CallState::Finished(execution) => Message::tool(call, &execution.outcome),
                _ => Message::tool(call, &Err(ToolError::not_executed(why_not_executed))),
            });
            if let CallState::Finished(execution) = record.state {
                executions.push(*execution);
            }
        }
        self.history.close(results, executions);
    }
}
