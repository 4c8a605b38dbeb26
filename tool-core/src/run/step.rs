//! What a run asks its driver to do.

use crate::{ChatRequest, ToolCall};

/// What a [`Run`](crate::Run) asks its driver to do next.
#[derive(Debug)]
#[non_exhaustive]
pub enum Step<'a> {
    /// Ask the model, and hand the response to [`Run::replied`](crate::Run::replied).
    CallModel(ChatRequest<'a>),
    /// Make these calls, in any order or all at once, and hand each outcome to
    /// [`Run::called`](crate::Run::called). They are the calls of the turn that have no outcome yet.
    CallTools(Vec<ToolCall>),
    /// There is nothing left to do: [`Run::finish`](crate::Run::finish) gives the answer.
    Done,
}
