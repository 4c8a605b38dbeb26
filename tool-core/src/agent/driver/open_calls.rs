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
    /// Those that have asked agents which cannot answer now.
    left: Vec<AskedBy>,
    was_undoing: bool,
    /// The layers judge an outcome, and these afterwards.
    pub(super) is_judging: bool,
    pub(super) to_judge: VecDeque<ToolExecution>,
    /// The first reason why a call has no outcome, other than that it waits.
    pub(super) failure: Option<RunErrorKind>,
    /// What is emitted once it is saved.
    pub(super) events: Vec<Event>,
    /// The step is announced.
    pub(super) is_settled: bool,
}

impl OpenCalls {
    pub(super) fn new(driver: &mut RunDriver, calls: Vec<ToolCall>) -> Self {
        Self {
            executor: Arc::new(driver.executor()),
            ids: calls.into_iter().map(|call| call.id).collect(),
            in_flight: InFlight::new(driver.agent().max_concurrent_calls()),
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

    pub(super) fn begin(&mut self, call_id: &str) {
        self.in_flight.begin(call_id);
    }

    /// Returns `true` if a call was started that was neither ended nor suspended.
    pub(super) fn is_in_flight(&self, call_id: &str) -> bool {
        self.in_flight.contains(call_id)
    }

    /// Ends a call whose outcome is recorded.
    pub(super) fn end(&mut self, call_id: &str) {
        self.in_flight.end(call_id);
    }

    /// Ends the execution of a call that has no outcome, for this reason.
    pub(super) fn suspend(&mut self, call_id: &str, why: RunErrorKind) {
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

    /// Returns `true` if the run has stopped, or has undone the call.
    pub(super) fn has_ended(&self, run: &Run) -> bool {
        run.is_done() || run.is_undoing() != self.was_undoing
    }
}
