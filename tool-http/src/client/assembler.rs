//! What each API does with the events of a streamed response.
//!
//! One assembler reads streamed and complete responses, because each quirk should be handled once.

use tool_core::model::{ChatResponse, Delta};

use super::sse::Event;

/// Assembles a response from the events of one API's stream, or from a whole response.
pub trait Assembler {
    /// Consumes one event and emits the deltas that it produces. It is not called again after [`Flow::End`] or an error.
    ///
    /// # Errors
    ///
    /// Returns an error if the event ends the stream as a failure.
    fn push(&mut self, event: &Event<'_>, emit: &mut dyn FnMut(Delta)) -> Result<Flow, EventError>;

    /// Consumes a response that is not streamed.
    ///
    /// # Errors
    ///
    /// Returns an error if the response reports one or cannot be used.
    fn push_whole(&mut self, json: &str) -> Result<(), EventError>;

    /// Returns `true` once any part of the response has arrived.
    fn has_started(&self) -> bool;

    /// Returns `true` if the response is complete even if the stream ends here.
    fn is_complete(&self) -> bool;

    /// Returns the response assembled so far.
    fn finish(self) -> ChatResponse;
}

/// The flow of events after one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// There may be more events.
    Continue,
    /// The event was the last one.
    End,
}

/// The reason that a body or an event could not be converted to a response.
#[derive(Debug)]
pub enum EventError {
    /// This JSON reports an error; some servers send it with status 200.
    Api(String),
    /// It does not follow the API, for this reason.
    Malformed(String),
    /// The provider aborted the reply, for this reason.
    Aborted(String),
    /// It follows the API but contains no reply.
    Empty,
}
