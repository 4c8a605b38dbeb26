//! Undoing the calls of a run that failed.
//!
//! Undo is part of the run, because it must survive restarts: the undo calls run in reverse order after a final failure.

use super::state::{CallRecord, Fact, Stage, UndoTarget, Undoing};
use crate::model::{ToolCall, ToolPolicy};
use crate::run::{InnerRun, Run, StopReason};
use crate::tool::{CallToUndo, ToolExecution};

/// The beginning of the ids of undo calls.
const UNDO_PREFIX: &str = "undo_";

/// Returns `true` if a call with this id can be one that undoes another. A model can choose such an id, too.
pub(crate) fn may_be_undo(call_id: &str) -> bool {
    call_id.starts_with(UNDO_PREFIX)
}

fn is_undoable_by_tool(execution: &ToolExecution) -> bool {
    execution.history.undo.is_some() && execution.may_have_had_effect()
}

impl Run {
    /// Returns what undoes the call at this position: a tool, or the agents of its runs, in the order in which these began.
    fn undoable_at(&self, position: usize) -> impl DoubleEndedIterator<Item = UndoTarget> {
        let execution = &self.tool_executions()[position];
        let by_tool = is_undoable_by_tool(execution);
        let is_of_call =
            move |inner: &InnerRun| !by_tool && inner.call_id == execution.call.id && inner.is_undoable();
        let inner = self.inner_runs.iter().enumerate().filter(move |(_, inner)| is_of_call(inner));
        let inner = inner.map(move |(inner, _)| UndoTarget { position, inner: Some(inner) });
        by_tool.then_some(UndoTarget { position, inner: None }).into_iter().chain(inner)
    }

    /// Returns what is to be undone of the calls before this position, the last one first.
    fn undoable_before(&self, end: usize) -> impl Iterator<Item = UndoTarget> {
        (0..end).rev().flat_map(|position| self.undoable_at(position).rev())
    }

    /// Returns `true` if calls of the run have to be undone once it stops.
    pub(super) fn has_undoable_calls(&self) -> bool {
        self.is_undoing() || self.undoable_before(self.tool_executions().len()).next().is_some()
    }

    pub(super) fn stage_after_stop(&mut self, reason: StopReason) -> Stage {
        let last = self.undoing().map(|undoing| undoing.target);
        let end = last.map_or(self.tool_executions().len(), |last| last.position + 1);
        let next = self.undoable_before(end).find(|next| last.is_none_or(|last| *next < last));
        match next {
            Some(target) => {
                if let Some(inner) = target.inner {
                    self.inner_runs.make_mut()[inner].revoke();
                }
                self.undoing_of(target, reason, CallRecord::default())
            }
            None => Stage::Ended(reason),
        }
    }

    /// Adds the call that is undone next to the stage of a restored run. Returns `None` if there is none.
    pub(super) fn restore_undoing(&mut self) -> Option<()> {
        match std::mem::replace(&mut self.stage, Stage::Asking) {
            Stage::Undoing(undoing) => {
                let undone = self.undo_executions().len();
                let target = self.undoable_before(self.tool_executions().len()).nth(undone)?;
                self.stage = self.undoing_of(target, undoing.reason, undoing.record);
            }
            stage => self.stage = stage,
        }
        Some(())
    }

    fn undoing_of(&self, target: UndoTarget, reason: StopReason, record: CallRecord) -> Stage {
        let execution = &self.tool_executions()[target.position];
        let prefix = self.undoing().map_or_else(|| self.undo_prefix(), |undoing| undoing.prefix.clone());
        // No other call has an id that begins with the prefix, so those of several runs differ by it.
        let number = self.undoable_at(target.position).filter(|other| *other >= target).count();
        let id = prefix.repeat(number) + &execution.call.id;
        // An agent undoes the calls of its run itself.
        let undo = match target.inner {
            None => execution.history.undo.clone().unwrap_or_default(),
            Some(_) => execution.call.name.clone(),
        };
        let call = ToolCall::new(id, undo, &*execution.call.arguments);
        Stage::Undoing(Box::new(Undoing { reason, record, call, target, prefix }))
    }

    /// Returns the position of the inner run whose calls this open call undoes.
    pub(super) fn undone_inner_run(&self, call_id: &str) -> Option<usize> {
        self.undoing().filter(|undoing| undoing.call.id == call_id)?.target.inner
    }

    /// Returns `true` if the next call is undone by the agent that it asked.
    pub(crate) fn is_undoing_inner_run(&self) -> bool {
        self.undoing().is_some_and(|undoing| undoing.target.inner.is_some())
    }

    /// Returns the prefix of the ids of undo calls. The idempotency key contains the id, so it must differ from the ids of the
    /// model's calls.
    fn undo_prefix(&self) -> String {
        let mut prefix = UNDO_PREFIX.to_owned();
        while self.call_ids().any(|taken| taken.starts_with(&prefix)) {
            prefix.push_str(UNDO_PREFIX);
        }
        prefix
    }

    pub(super) fn undoing(&self) -> Option<&Undoing> {
        match &self.stage {
            Stage::Undoing(undoing) => Some(undoing),
            _ => None,
        }
    }

    /// Returns `true` if the run has stopped and undoes its calls.
    #[must_use]
    pub fn is_undoing(&self) -> bool {
        self.undoing().is_some()
    }

    pub(crate) fn next_undo_call(&self) -> Option<&ToolCall> {
        self.undoing().map(|undoing| &undoing.call)
    }

    fn undone_execution(&self) -> Option<&ToolExecution> {
        Some(&self.tool_executions()[self.undoing()?.target.position])
    }

    /// Returns the call that the next call undoes.
    pub(crate) fn next_undone(&self) -> Option<CallToUndo> {
        let execution = self.undone_execution()?;
        let call = execution.call.clone();
        Some(CallToUndo { key: self.key(&call.id), call, output: execution.original_outcome().ok().cloned() })
    }

    /// Applies the policy of its tool to the next undo call, and finishes the calls that must not be executed again.
    ///
    /// `policy` receives the number of handoffs before the undone call, because its agent undoes it, and the name of the tool.
    pub(super) fn apply_undo_policy(&mut self, policy: impl Fn(usize, &str) -> Option<ToolPolicy>) {
        while let (Some(handoffs), Stage::Undoing(undoing)) = (self.handoffs_before_undone(), &mut self.stage)
        {
            if let Some(policy) = policy(handoffs, &undoing.call.name) {
                undoing.record.restrict(&policy);
            }
            let Some(error) = undoing.record.forbidden_retry() else { return };
            let execution = ToolExecution::new(undoing.call.clone(), Err(error));
            self.finish_undo_call(execution);
        }
    }

    pub(super) fn finish_undo_call(&mut self, execution: ToolExecution) {
        let Stage::Undoing(undoing) = &mut self.stage else { return };
        let reason = undoing.reason.clone();
        let execution = undoing.record.complete(execution);
        self.append(Fact::Undone(execution.into()));
        self.stage = self.stage_after_stop(reason);
    }
}
