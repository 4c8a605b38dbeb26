//! The streamed answer: events, each of which tells of the response or of one of its items.

use tool_core::{ChatResponse, Delta};

use super::assembler::Assembler;
use super::response::WireEvent;
use crate::quirks;
use crate::sse::Event;
use crate::streaming::{Assemble, Problem, Progress};

/// What some servers send behind the last event, as in Chat Completions.
const DONE: &str = "[DONE]";

impl Assemble for Assembler<'_> {
    fn add(&mut self, event: &Event<'_>, tell: &mut impl FnMut(Delta)) -> Result<Progress, Problem> {
        let data = event.data.trim_ascii();
        if data.is_empty() || data == DONE {
            return Ok(Progress::Goes);
        }
        let data = &*quirks::with_whole_characters(data);
        let wire = WireEvent::read(data)?;
        // Names repeat the kind, but for errors that are events of no kind.
        let kind = match (&*event.name, wire.kind.as_deref()) {
            ("error", _) => "error",
            (_, Some(kind)) => kind,
            (name, None) => name,
        };
        self.add_event(kind, &wire, data, tell)
    }

    fn has_begun(&self) -> bool {
        true
    }

    /// Only the last event says so.
    fn is_finished(&self) -> bool {
        false
    }

    fn into_response(self) -> ChatResponse {
        self.into_response()
    }
}
