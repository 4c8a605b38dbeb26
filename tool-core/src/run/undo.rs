//! Undoing the calls of a run that failed.

use super::state::Stage;
use crate::model::{ToolCall, ToolPolicy};
use crate::run::{Run, StopReason};
use crate::tool::{ToolError, ToolExecution, Undone};

impl Run {
    /// Returns the calls to undo when the run fails, the last one first, each with the name of the tool that undoes it.
    fn executions_to_undo(&self) -> impl Iterator<Item = (&ToolExecution, &str)> {
        let undoable = self.tool_executions.iter().rev().filter(|one| one.may_have_had_effect());
        undoable.filter_map(|one| Some((one, one.metadata.undo.as_deref()?)))
    }

    /// Returns the next call to undo.
    fn next_to_undo(&self) -> Option<(&ToolExecution, &str)> {
        self.executions_to_undo().nth(self.undo_executions.len())
    }

    /// Returns the stage of a run that stopped for this reason.
    pub(super) fn stage_after_stop(&self, reason: StopReason) -> Stage {
        if self.next_to_undo().is_some() {
            Stage::Undoing { reason, record: Box::default() }
        } else {
            Stage::Ended(reason)
        }
    }

    pub(crate) fn is_undoing(&self) -> bool {
        matches!(self.stage, Stage::Undoing { .. })
    }

    /// Returns the next call that undoes another.
    pub(crate) fn next_undo_call(&self) -> Option<ToolCall> {
        let Stage::Undoing { .. } = self.stage else { return None };
        let (execution, undo) = self.next_to_undo()?;
        // The idempotency key contains the id, so the id must differ from those of the model's calls.
        let mut id = "undo_".to_owned();
        while self.call_ids().any(|taken| taken.starts_with(&id)) {
            id.push_str("undo_");
        }
        id.push_str(&execution.call.id);
        Some(ToolCall::new(id, undo, &*execution.call.arguments))
    }

    /// Returns the call that the next call undoes.
    pub(crate) fn next_undone(&self) -> Option<Undone> {
        let Stage::Undoing { .. } = self.stage else { return None };
        let (execution, _) = self.next_to_undo()?;
        Some(Undone { call: execution.call.clone(), output: execution.output().cloned() })
    }

    /// Applies the policy of its tool to the next undo call, and finishes the calls that must not be executed again.
    pub(super) fn settle_undo_call(&mut self, policy: impl Fn(&str) -> Option<ToolPolicy>) {
        while let Some(call) = self.next_undo_call() {
            let Stage::Undoing { record, .. } = &mut self.stage else { return };
            if let Some(policy) = policy(&call.name) {
                record.restrict(policy);
            }
            let error = if record.is_outcome_unknown() {
                ToolError::outcome_unknown()
            } else if record.has_no_attempts_left() {
                ToolError::interrupted()
            } else {
                return;
            };
            self.record_undo_result(ToolExecution::new(call, Err(error)));
        }
    }

    pub(super) fn record_undo_result(&mut self, mut execution: ToolExecution) {
        if let Stage::Undoing { reason, record } = &self.stage {
            execution.metadata.attempts = Some(record.attempts).filter(|attempts| *attempts > 1);
            self.undo_executions.push(execution);
            self.stage = self.stage_after_stop(reason.clone());
        }
    }
}
