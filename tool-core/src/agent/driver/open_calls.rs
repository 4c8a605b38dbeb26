//! The calls of one step of a run, while they are executed.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::agent::executor::CallExecutor;
use crate::agent::{Event, RunDriver};
use crate::model::ToolCall;
use crate::run::{Run, RunErrorKind};
use crate::tool::ToolExecution;

/// The calls of one step of a run, while they are executed.
pub(super) struct OpenCalls {
    pub(super) executor: Arc<CallExecutor>,
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

impl OpenCalls {
    pub(super) fn new(driver: &mut RunDriver, calls: Vec<ToolCall>) -> Self {
        // Calls of the next step can have other tools.
        let ids = calls.into_iter().map(|call| call.id).collect();
        driver.run.open_step(driver.agent().max_concurrent_calls(), ids);
        Self {
            executor: Arc::new(driver.executor()),
            was_undoing: driver.run.is_undoing(),
            is_judging: false,
            to_judge: VecDeque::new(),
            failure: None,
            events: Vec::new(),
            is_settled: false,
        }
    }

    /// Returns `true` if a call of the step can start once the calls of other runs leave room for it.
    pub(super) fn is_held(&self, run: &Run) -> bool {
        !run.can_start().is_empty()
    }

    /// Returns the next outcome that layers have to judge, unless they judge another one or the run has ended.
    pub(super) fn next_to_judge(&mut self, run: &Run) -> Option<ToolExecution> {
        let is_free = !self.is_judging && !self.has_ended(run);
        is_free.then(|| self.to_judge.pop_front()).flatten()
    }

    /// Ends the execution of a call that has no outcome, for this reason.
    pub(super) fn suspend(&mut self, run: &mut Run, call_id: &str, why: RunErrorKind) {
        run.suspend_call(call_id);
        if !matches!(why, RunErrorKind::Waiting) {
            self.failure.get_or_insert(why);
        }
    }

    /// Drops what is open.
    pub(super) fn clear(&mut self) {
        self.to_judge.clear();
        self.failure = None;
    }

    /// Returns `true` if the run has stopped, or has undone the call.
    pub(super) fn has_ended(&self, run: &Run) -> bool {
        run.is_done() || run.is_undoing() != self.was_undoing
    }
}
