//! Outputs that are too long for the model to read at once, and are stored beside the run.

use std::sync::Arc;

use crate::memory::OutputStore;
use crate::run::{RunErrorKind, RunId, reading_hint};
use crate::tool::{ToolError, ToolExecution, ToolOutput, exceeds, truncate_outcome};

/// The name of the tool that reads what the model does not read in full.
pub(in crate::agent) const READ_OUTPUT: &str = "read_output";

/// Where long outputs are stored, and from what length on.
#[derive(Clone)]
pub(in crate::agent) struct LongOutputs {
    pub(in crate::agent) store: Arc<dyn OutputStore>,
    /// The characters that the model reads of an output.
    pub(in crate::agent) limit: usize,
}

/// Returns the own limit of a tool, if its output is longer.
pub(in crate::agent) fn own_limit(execution: &ToolExecution) -> Option<usize> {
    execution.outcome().ok()?.limit()
}

impl LongOutputs {
    /// Returns `true` if the model does not read all of the outcome, or the record has a longer one before layers of the set.
    pub(in crate::agent) fn is_long(&self, execution: &ToolExecution) -> bool {
        let exceeds = |outcome: Result<&ToolOutput, &ToolError>| match outcome {
            Ok(output) => exceeds(&output.content().text(), self.limit) || output.limit().is_some(),
            Err(error) => exceeds(&error.to_string(), self.limit),
        };
        exceeds(execution.outcome()) || exceeds(execution.original_outcome())
    }

    /// Shortens an outcome, as layers have left it, if it is too long for the agent or by its tool's own limit, and stores the whole output.
    pub(in crate::agent) async fn shorten(
        &self,
        execution: &mut ToolExecution,
        run: &RunId,
        own: Option<usize>,
    ) -> Result<(), RunErrorKind> {
        let limit = own.map_or(self.limit, |own| own.min(self.limit));
        if let Some(original) = &mut execution.history.original_outcome {
            original.0 = truncate_outcome(original.0.clone(), limit);
        }
        let call = &execution.call;
        let output = execution.outcome.as_ref().ok().filter(|_| call.name != READ_OUTPUT);
        let text = output.map(|output| output.content().text()).filter(|text| exceeds(text, limit));
        let (Some(output), Some(text)) = (output, text) else {
            execution.outcome = truncate_outcome(execution.outcome.clone(), limit);
            return Ok(());
        };
        self.store.store_output(run, &call.id, &text).await.map_err(RunErrorKind::Store)?;
        let hint = reading_hint(&call.id);
        let shortened = |limit| output.clone().truncated(limit);
        execution.outcome = Ok(match limit.checked_sub(hint.chars().count()) {
            Some(rest) => shortened(rest).with_part(hint),
            // Its id is enough to read it.
            None => shortened(limit),
        });
        Ok(())
    }

    /// Removes the outputs of runs that have ended.
    pub(in crate::agent) async fn remove(&self, ids: &[RunId]) -> Result<(), RunErrorKind> {
        for id in ids {
            self.store.remove_outputs(id).await.map_err(RunErrorKind::Store)?;
        }
        Ok(())
    }
}
