//! What layers see of a run while it changes.

use super::history::History;
use super::id::RunId;
use super::shared_vec::SharedVec;
use super::state::Run;
use crate::model::Message;
use crate::tool::ToolExecution;

/// The history of a run at one time, which it shares with the run. While a view exists, a change of the history copies it.
#[derive(Clone, Debug)]
pub(crate) struct RunView {
    pub(crate) id: RunId,
    /// The number of the turn, from 1.
    pub(crate) turn: u32,
    messages: SharedVec<Message>,
    /// The number of messages that the model is sent in this turn.
    sent: usize,
    executions: SharedVec<ToolExecution>,
    /// The number of handoffs before the call that is undone.
    pub(crate) handoffs_before_undone: Option<usize>,
}

impl RunView {
    pub(crate) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns the messages that the model is sent in this turn.
    pub(crate) fn sent_messages(&self) -> &[Message] {
        &self.messages[..self.sent]
    }

    pub(crate) fn executions(&self) -> &[ToolExecution] {
        &self.executions
    }
}

impl Run {
    /// Returns what layers see of the run now.
    pub(crate) fn view(&self) -> RunView {
        let (messages, executions) = History::share(&self.history);
        RunView {
            id: self.id.clone(),
            turn: self.turn(),
            messages,
            sent: self.sent_messages().len(),
            executions,
            handoffs_before_undone: self.handoffs_before_undone(),
        }
    }
}

#[cfg(test)]
impl Run {
    /// Returns `true` if nothing shares the history of the run.
    pub(crate) fn is_history_unshared(&self) -> bool {
        let (messages, executions) = History::share(&self.history);
        messages.is_held_by(2) && executions.is_held_by(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AssistantMessage, ChatResponse, ToolCall};
    use crate::tool::{ToolExecution, ToolOutput};

    /// Outcomes of an open turn stand in the records of its calls, so that judging one of them beside others copies nothing.
    #[test]
    fn a_view_shares_the_history_while_other_calls_end() {
        let mut run = Run::new([Message::user("Go")]);
        let calls = ["a", "b"].map(|id| ToolCall::new(id, "work", "{}"));
        let reply = AssistantMessage::default().with_tool_calls(calls.clone());
        run.record_response(ChatResponse::new(reply)).unwrap();
        let is_shared = |view: &RunView, run: &Run| {
            let (messages, executions) = run.history.share();
            view.messages.is_shared_with(&messages) && view.executions.is_shared_with(&executions)
        };
        let view = run.view();
        let [first, second] = calls.map(|call| ToolExecution::new(call, Ok(ToolOutput::text("done"))));
        run.record_result(first).unwrap();
        assert!(is_shared(&view, &run));
        assert!(is_shared(&view, &run.clone()));
        // The end of the turn adds the results.
        run.record_result(second).unwrap();
        assert!(!is_shared(&view, &run));
        assert_eq!((view.messages().len(), run.messages().len()), (2, 4));
    }
}
