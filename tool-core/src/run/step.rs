//! The next step of a run.

use crate::model::{ChatRequest, ToolCall};
use crate::run::Wait;

/// The next step of a [`Run`](crate::run::Run), for its driver to take.
#[derive(Debug)]
#[non_exhaustive]
pub enum Step<'a> {
    /// Send the request to the model and pass the response to [`Run::record_response`](crate::run::Run::record_response). The request
    /// of a [`RunDriver`](crate::agent::RunDriver) is charged to the run, and limited by what it may spend, if it is sent with
    /// [`ChatRequest::send_to`].
    CallModel(ChatRequest<'a>),
    /// Execute these calls, in any order or concurrently, and pass each outcome to
    /// [`Run::record_result`](crate::run::Run::record_result). They are the calls of the turn that have no outcome yet and do not
    /// wait; or, in a run that failed, the next call that undoes another.
    CallTools(Vec<ToolCall>),
    /// Every remaining call waits, for an approval, an answer, a result of the caller or a point in time, which can take any
    /// amount of time: store the run, and pass each decision to [`Run::resolve`](crate::run::Run::resolve).
    Waiting(Vec<Wait>),
    /// Nothing is left to do: [`Run::finish`](crate::run::Run::finish) returns the answer.
    Done,
}
