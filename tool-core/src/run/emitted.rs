//! The calls whose end the listeners of a run know.
//!
//! The driver compares the calls that have finished with those it has reported, because calls end in many ways.

use std::collections::HashSet;

use super::state::{EmittedCalls, Run};
use crate::model::Message;
use crate::tool::{DecisionKind, ToolExecution};

impl EmittedCalls {
    /// Creates the record of a run whose listeners know all calls that have finished.
    #[must_use]
    pub fn all_of(run: &Run) -> Self {
        Self {
            executions: run.tool_executions().len(),
            undo_executions: run.undo_executions().len(),
            first: 0,
            ids: current_executions(run, 0).map(id).collect(),
        }
    }

    /// Creates the record of a run that is driven again. Its listeners know all calls that have finished, but those that decisions have
    /// finished meanwhile, and those whose outputs are an answer, or can become one, that layers have not judged if they see answers.
    pub(crate) fn before(run: &Run, sees_answers: bool) -> Self {
        let ends = |kind| matches!(kind, DecisionKind::Denied | DecisionKind::Supplied);
        let decided =
            run.engine_view().unreported_decisions().iter().filter(|decision| ends(decision.record.kind));
        let decided = decided.map(|decision| decision.call_id.clone());
        let unjudged = if sees_answers { run.unjudged_answers() } else { Vec::new() };
        let held_back = run.head.shown.held_back.iter().cloned();
        Self::all_of(run).without(run, &decided.chain(unjudged).chain(held_back).collect())
    }

    /// Returns the record without these calls of the last turn.
    fn without(mut self, run: &Run, call_ids: &HashSet<String>) -> Self {
        if !call_ids.is_empty() && run.current_calls().next().is_none() {
            let last = run.messages().iter().rev().find_map(Message::as_assistant);
            let last = last.map_or(&[][..], |reply| &reply.tool_calls);
            let ids: HashSet<_> = last.iter().map(|call| &call.id).collect();
            // A run that has stopped has none of calls that never began.
            let of_last = run.tool_executions().iter().rev().take_while(|one| ids.contains(&one.call().id));
            self.executions -= of_last.count();
            self.ids.extend(ids.into_iter().cloned());
        }
        self.ids.retain(|id| !call_ids.contains(id));
        self
    }

    pub(crate) fn add(&mut self, call_id: &str) {
        self.ids.insert(call_id.to_owned());
    }

    /// Returns the finished calls that listeners do not know yet and that layers have judged, if they see answers and outputs. Those that
    /// layers have not judged are returned later.
    pub fn take_shown(&mut self, run: &Run, sees_answers: bool, sees_outputs: bool) -> Vec<ToolExecution> {
        let mut unjudged = if sees_answers { run.unjudged_answers() } else { Vec::new() };
        if sees_outputs {
            unjudged.extend(run.unjudged_results().map(id));
        }
        self.take_all_but(run, &unjudged.into_iter().collect())
    }

    /// Returns the finished calls that listeners do not know yet.
    pub fn take_unreported(&mut self, run: &Run) -> Vec<ToolExecution> {
        self.take_all_but(run, &HashSet::new())
    }

    /// Returns the finished calls that listeners do not know yet, without these. A reply can have very many, of which the first ones that
    /// have finished are not looked at again.
    fn take_all_but(&mut self, run: &Run, hidden: &HashSet<String>) -> Vec<ToolExecution> {
        let is_same_turn = run.tool_executions().len() == self.executions;
        // A call at the beginning of a turn that is over has its execution at the beginning of those of the turn.
        let earlier = run.tool_executions().iter().skip(self.executions + self.first);
        let current = current_executions(run, if is_same_turn { self.first } else { 0 });
        let undoing = run.undo_executions().iter().skip(self.undo_executions);
        let is_shown = |execution: &&ToolExecution| !hidden.contains(&execution.call().id);
        let is_new = |execution: &&ToolExecution| !self.ids.contains(&execution.call().id);
        let unreported = earlier.chain(current).chain(undoing).filter(is_new).filter(is_shown);
        let unreported: Vec<_> = unreported.cloned().collect();
        if is_same_turn && (hidden.is_empty() || run.current_calls().next().is_some()) {
            self.undo_executions = run.undo_executions().len();
            self.ids.extend(unreported.iter().map(id));
        } else {
            *self = Self::all_of(run).without(run, hidden);
        }
        let finished = run.current_calls().skip(self.first).map_while(|(_, execution)| execution);
        for execution in finished.take_while(is_shown) {
            self.ids.remove(&execution.call().id);
            self.first += 1;
        }
        unreported
    }
}

/// Returns the executions of the current turn, without those of its first calls.
fn current_executions(run: &Run, first: usize) -> impl Iterator<Item = &ToolExecution> {
    run.current_calls().skip(first).filter_map(|(_, execution)| execution)
}

fn id(execution: &ToolExecution) -> String {
    execution.call().id.clone()
}
