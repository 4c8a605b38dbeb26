//! How often a run requested each call.
//!
//! A count restarts when something may have changed, because a model that edits and tests repeats the test. Only a call that was not executed
//! before shows that: otherwise two calls could restart each other without end. Calls that must not happen twice are counted without
//! restarts.

use std::collections::HashMap;

use crate::tool::{OutcomeOrigin, ToolErrorKind, ToolExecution};

/// The number of executions of each request, by its hash.
#[derive(Clone, Default)]
pub(super) struct RequestCounts {
    counts: HashMap<u64, RequestCount>,
    /// The number of executions after which all counts but their own restarted.
    restarts: usize,
}

/// The executions of one request. Those that were refused or failed count as well.
#[derive(Clone, Copy, Default)]
pub(super) struct RequestCount {
    /// Those since the last restart.
    pub(super) repeated: usize,
    /// Those of the whole run.
    pub(super) total: usize,
    pub(super) is_pure: bool,
    pub(super) is_at_most_once: bool,
    /// The number of restarts of which `repeated` knows.
    restarts: usize,
    was_executed: bool,
    /// The last one does not count.
    is_hidden: bool,
}

impl RequestCounts {
    /// Adds an execution, the latest one. That of a `pure` tool does not count if its output is hidden from the model, which can request it
    /// again; nor do those that were refused because of it.
    pub(super) fn add(&mut self, request: u64, execution: &ToolExecution, is_hidden: bool) {
        let history = &execution.history;
        let mut count = self.count(request);
        // A call that was refused early does not know its policy.
        count.is_pure |= history.is_pure;
        count.is_at_most_once |= history.is_at_most_once;
        // What layers made of the outcome does not matter.
        let outcome = execution.original_outcome();
        let is_refused = outcome
            .is_err_and(|error| matches!(error.kind(), ToolErrorKind::Denied | ToolErrorKind::NotExecuted));
        let is_executed =
            !is_refused && matches!(history.origin, OutcomeOrigin::Executed | OutcomeOrigin::External);
        count.is_hidden = history.is_pure && (is_hidden || is_refused && count.is_hidden);
        if !count.is_hidden {
            count.repeated += 1;
            count.total += 1;
        }
        let is_new = is_executed && !count.was_executed;
        count.was_executed |= is_executed;
        self.restarts += usize::from(is_new && outcome.is_ok() && !history.is_pure);
        count.restarts = self.restarts;
        self.counts.insert(request, count);
    }

    /// Returns the number of executions of a request.
    pub(super) fn count(&self, request: u64) -> RequestCount {
        let mut count = self.counts.get(&request).copied().unwrap_or_default();
        if count.restarts < self.restarts && !count.is_at_most_once {
            count.repeated = 0;
        }
        count
    }
}
