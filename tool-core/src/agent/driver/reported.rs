//! The calls whose end was emitted.

use std::collections::HashSet;

use crate::run::Run;
use crate::tool::ToolExecution;

/// The finished calls of a run that listeners know.
pub(super) struct ReportedCalls {
    /// The number of executions of earlier turns.
    executions: usize,
    /// The ids of calls of the current turn.
    ids: HashSet<String>,
}

impl ReportedCalls {
    /// Creates the record of a run whose listeners know all calls that have finished.
    pub(super) fn all_of(run: &Run) -> Self {
        Self { executions: run.tool_executions().len(), ids: current_executions(run).map(id).collect() }
    }

    pub(super) fn add(&mut self, call_id: &str) {
        self.ids.insert(call_id.to_owned());
    }

    /// Returns the finished calls that listeners do not know yet.
    pub(super) fn take_unreported(&mut self, run: &Run) -> Vec<ToolExecution> {
        let earlier = run.tool_executions().iter().skip(self.executions);
        let is_new = |execution: &&ToolExecution| !self.ids.contains(&execution.call().id);
        let unreported = earlier.chain(current_executions(run)).filter(is_new).cloned().collect();
        *self = Self::all_of(run);
        unreported
    }
}

fn current_executions(run: &Run) -> impl Iterator<Item = &ToolExecution> {
    run.current_calls().filter_map(|(_, execution)| execution)
}

fn id(execution: &ToolExecution) -> String {
    execution.call().id.clone()
}
