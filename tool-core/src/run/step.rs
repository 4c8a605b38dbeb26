//! What a run asks its driver to do.

use crate::model::{ChatRequest, ToolCall};

/// What a [`Run`](crate::Run) asks its driver to do next.
#[derive(Debug)]
#[non_exhaustive]
pub enum Step<'a> {
    /// Ask the model, and hand the response to [`Run::record_response`](crate::Run::record_response).
    CallModel(ChatRequest<'a>),
    /// Make these calls, in any order or all at once, and hand each outcome to
    /// [`Run::record_result`](crate::Run::record_result). They are the calls of the turn that have no outcome yet and wait for nobody;
    /// or, of a run that failed, the call that undoes what is to be undone next.
    CallTools(Vec<ToolCall>),
    /// Nothing can be done but to ask a person about these calls, now or next week: keep the run, and hand each answer
    /// to [`Run::resolve_approval`](crate::Run::resolve_approval).
    NeedsApproval(Vec<ToolCall>),
    /// There is nothing left to do: [`Run::finish`](crate::Run::finish) gives the answer.
    Done,
}
