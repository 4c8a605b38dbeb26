//! What the record of a run has, for one that repeats it.

use std::collections::BTreeMap;

use super::state::{Fact, Run, Stage};
use crate::model::{FinishReason, ResponseFormat, ToolDefinitions, Usage};
use crate::run::StopReason;
use crate::tool::{CallNotes, DecisionRecord, ToolExecution};

impl Run {
    /// Returns the arguments of a call as the model wrote them, if they were changed.
    pub(crate) fn original_arguments(&self, call_id: &str) -> Option<&str> {
        match self.finished_call(call_id) {
            Some(execution) => Some(execution.original_arguments()),
            None => self.record(call_id)?.history.original_arguments.as_deref(),
        }
    }

    /// Returns the arguments of a call as they are now.
    pub(crate) fn current_arguments(&self, call_id: &str) -> Option<&str> {
        let finished = self.finished_call(call_id).map(ToolExecution::call);
        let call = finished.or_else(|| self.calls().iter().find(|call| call.id == call_id))?;
        Some(&call.arguments)
    }

    /// Returns the decisions about a call, in their order.
    pub(crate) fn decisions_about(&self, call_id: &str) -> impl Iterator<Item = &DecisionRecord> {
        let open = self.record(call_id).map(|record| &record.history.decisions);
        let finished = self.finished_call(call_id).map(ToolExecution::decisions);
        finished.or(open.map(Vec::as_slice)).unwrap_or_default().iter()
    }

    /// Returns the notes of a call that waits for what is in them.
    pub(crate) fn notes_of_waiting(&self, call_id: &str) -> Option<&CallNotes> {
        // Once it has a reply, it goes on.
        let waits = self.waits().iter().any(|wait| wait.path == call_id);
        self.record(call_id)?.notes().filter(|_| waits)
    }

    /// Returns why the run has stopped, or stops once its calls are undone.
    pub(crate) fn why_it_stops(&self) -> Option<&StopReason> {
        match &self.stage {
            Stage::Ended(reason) => Some(reason),
            Stage::Undoing(undoing) => Some(&undoing.reason),
            _ => None,
        }
    }

    /// Returns how the reply ended that is the answer.
    pub(crate) fn finish_reason(&self) -> Option<&FinishReason> {
        match &self.stage {
            Stage::Answered(reason) => Some(reason),
            _ => None,
        }
    }

    /// Returns what the replies of the model to this run alone have used.
    pub(crate) fn used_by_replies(&self) -> Usage {
        self.head.usage
    }

    /// Returns `true` if the message at this position among the new ones rejected an answer.
    pub(crate) fn is_rejection(&self, position: usize) -> bool {
        self.head.settings.rejections.contains(&position)
    }

    /// Notes what the model is offered.
    pub(crate) fn note_offered(&mut self, tools: &ToolDefinitions) {
        let digests = tools.digests();
        if digests.0 != *self.offered() {
            self.append(Fact::Offered(digests.0.clone()));
        }
    }

    /// Returns the digests of the definitions that the model was last offered, by their names.
    pub(crate) fn offered(&self) -> &BTreeMap<String, String> {
        self.history.offered()
    }

    /// Returns the form of answer that the question demanded.
    pub(crate) fn response_format(&self) -> Option<&ResponseFormat> {
        self.head.settings.response_format.as_ref()
    }

    /// Returns the number of calls of the open turn.
    pub(crate) fn open_turn(&self) -> usize {
        match &self.stage {
            Stage::Calling(turn) => turn.calls.len(),
            _ => 0,
        }
    }
}
