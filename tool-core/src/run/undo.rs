//! Undoing what the calls of a run did, if the run fails.

use super::ending::Ending;
use super::state::Stage;
use crate::model::{ToolCall, ToolDefinition, ToolDefinitions};
use crate::run::{Run, StepError};
use crate::tool::{ToolError, ToolErrorKind, ToolExecution, Undone};

impl Run {
    /// The calls that are to be undone when the run fails, the last first.
    fn undoable(&self) -> impl Iterator<Item = (&ToolExecution, &str)> {
        self.tool_executions.iter().rev().filter_map(|execution| {
            let may_have_had_effect = match execution.outcome() {
                Ok(_) => !execution.is_reused(),
                Err(error) => matches!(
                    error.kind(),
                    ToolErrorKind::OutcomeUnknown | ToolErrorKind::TimedOut | ToolErrorKind::Panicked
                ),
            };
            execution.metadata.undo.as_deref().filter(|_| may_have_had_effect).map(|undo| (execution, undo))
        })
    }

    /// Undoes what the calls of the run did, as it is given up: a run that ended for good does so by itself, one that
    /// could be driven on is told so.
    ///
    /// # Errors
    ///
    /// The run has an answer.
    pub fn give_up(&mut self) -> Result<(), StepError> {
        match self.stage {
            Stage::Asking | Stage::Calling(_) => self.end(Ending::Cancelled),
            Stage::Undoing { .. } | Stage::Ended(_) => {}
            Stage::Answered(_) | Stage::Returned(_) => return Err(StepError("to give up an answer")),
        }
        Ok(())
    }

    /// How the run goes on when it has ended so.
    pub(super) fn undoing(&self, ending: Ending) -> Stage {
        if self.undoable().nth(self.undone.len()).is_some() {
            Stage::Undoing { ending, standing: Box::default() }
        } else {
            Stage::Ended(ending)
        }
    }

    pub(crate) fn is_undoing(&self) -> bool {
        matches!(self.stage, Stage::Undoing { .. })
    }

    /// The call that undoes what is to be undone next.
    pub(crate) fn undo_call(&self) -> Option<ToolCall> {
        let Stage::Undoing { .. } = self.stage else { return None };
        let (execution, undo) = self.undoable().nth(self.undone.len())?;
        // An id of its own, as its key is made of it: no call of the model's begins so.
        let mut id = "undo_".to_owned();
        while self.ids_of_calls().any(|taken| taken.starts_with(&id)) {
            id.push_str("undo_");
        }
        id.push_str(&execution.call.id);
        Some(ToolCall::new(id, undo, &*execution.call.arguments))
    }

    /// What is to be undone next.
    pub(crate) fn to_undo(&self) -> Option<Undone> {
        let Stage::Undoing { .. } = self.stage else { return None };
        let (execution, _) = self.undoable().nth(self.undone.len())?;
        Some(Undone { call: execution.call.clone(), output: execution.output().cloned() })
    }

    pub(super) fn settle_undoing(&mut self, tools: &ToolDefinitions) {
        while let Some(call) = self.undo_call() {
            let Stage::Undoing { standing, .. } = &mut self.stage else { return };
            if standing.policy.is_none() {
                let definition = tools.iter().find(|definition| definition.name() == call.name);
                standing.policy = definition.map(ToolDefinition::policy);
            }
            if !standing.is_lost() {
                return;
            }
            self.record_undone(ToolExecution::new(call, Err(ToolError::outcome_unknown())));
        }
    }

    pub(super) fn record_undone(&mut self, mut execution: ToolExecution) {
        if let Stage::Undoing { ending, standing } = &self.stage {
            execution.metadata.attempts = Some(standing.attempts).filter(|attempts| *attempts > 1);
            self.undone.push(execution);
            self.stage = self.undoing(ending.clone());
        }
    }
}
