//! The calls of one step of a run, while they are executed.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use super::call_in_flight::AskedBy;
use crate::agent::executor::CallExecutor;
use crate::agent::{Event, RunDriver};
use crate::model::ToolCall;
use crate::run::{InFlight, Run, RunErrorKind};
use crate::tool::ToolExecution;

/// The calls of one step of a run, while they are executed.
pub(super) struct OpenCalls {
    pub(super) executor: Arc<CallExecutor>,
    /// Calls of the next step can have other tools.
    ids: HashSet<String>,
    in_flight: InFlight,
    executing: Vec<Executing>,
    /// A call of this step cannot start until other calls have ended.
    pub(super) is_held: bool,
    /// A held call is exclusive.
    pub(super) holds_exclusive: bool,
    /// The calls whose agents cannot answer now.
    left: Vec<AskedBy>,
    was_undoing: bool,
    /// The layers are judging an outcome; `to_judge` holds the next ones.
    pub(super) is_judging: bool,
    pub(super) to_judge: VecDeque<ToolExecution>,
    /// The first reason why a call has no outcome, other than that it waits.
    pub(super) failure: Option<RunErrorKind>,
    /// What is emitted once it is saved.
    pub(super) events: Vec<Event>,
    /// The step is announced.
    pub(super) is_settled: bool,
}

/// A call that is executed.
pub(super) struct Executing {
    pub(super) id: String,
    pub(super) is_exclusive: bool,
    pub(super) asks_agent: bool,
}

impl OpenCalls {
    pub(super) fn new(driver: &mut RunDriver, calls: Vec<ToolCall>) -> Self {
        Self {
            executor: Arc::new(driver.executor()),
            ids: calls.into_iter().map(|call| call.id).collect(),
            in_flight: InFlight::new(driver.agent().max_concurrent_calls()),
            executing: Vec::new(),
            is_held: false,
            holds_exclusive: false,
            left: Vec::new(),
            was_undoing: driver.run.is_undoing(),
            is_judging: false,
            to_judge: VecDeque::new(),
            failure: None,
            events: Vec::new(),
            is_settled: false,
        }
    }

    /// Returns the calls of the step that can start now.
    pub(super) fn startable(&self, run: &Run) -> Vec<ToolCall> {
        let mut calls = run.startable(&self.in_flight);
        calls.retain(|call| self.ids.contains(&call.id));
        calls
    }

    pub(super) fn begin(&mut self, call: &ToolCall, is_exclusive: bool) {
        self.in_flight.begin(&call.id);
        let asks_agent = self.executor.agent_of(call).is_some();
        self.executing.push(Executing { id: call.id.clone(), is_exclusive, asks_agent });
    }

    /// Returns the calls that are executed now.
    pub(super) fn executing(&self) -> &[Executing] {
        &self.executing
    }

    /// Ends the execution of a call. Returns `false` if it was suspended before.
    pub(super) fn end_execution(&mut self, call_id: &str) -> bool {
        self.executing.retain(|one| one.id != call_id);
        self.in_flight.contains(call_id)
    }

    /// Returns the next outcome that layers have to judge, unless they judge another one or the run has ended.
    pub(super) fn next_to_judge(&mut self, run: &Run) -> Option<ToolExecution> {
        let is_free = !self.is_judging && !self.has_ended(run);
        is_free.then(|| self.to_judge.pop_front()).flatten()
    }

    pub(super) fn is_in_flight(&self, call_id: &str) -> bool {
        self.in_flight.contains(call_id)
    }

    /// Ends a call whose outcome is recorded.
    pub(super) fn end(&mut self, call_id: &str) {
        self.in_flight.end(call_id);
    }

    /// Ends the execution of a call that has no outcome, for this reason.
    pub(super) fn suspend(&mut self, call_id: &str, why: RunErrorKind) {
        self.executing.retain(|one| one.id != call_id);
        self.in_flight.suspend(call_id);
        if !matches!(why, RunErrorKind::Waiting) {
            self.failure.get_or_insert(why);
        }
    }

    /// Ends the execution of a call that has asked an agent and gets no answer.
    pub(super) fn leave(&mut self, asked_by: AskedBy) {
        asked_by.suspended.cancel();
        self.left.push(asked_by);
    }

    /// Drops what is open.
    pub(super) fn clear(&mut self) {
        self.executing.clear();
        self.to_judge.clear();
        (self.is_held, self.holds_exclusive) = (false, false);
        self.failure = None;
    }

    /// Returns `true` if the run has stopped, or has undone the call.
    pub(super) fn has_ended(&self, run: &Run) -> bool {
        run.is_done() || run.is_undoing() != self.was_undoing
    }
}
