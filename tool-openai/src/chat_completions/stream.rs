//! The streamed answer: events, each a chunk of the response.

use tool_core::{ChatResponse, Delta};

use super::assembler::Assembler;
use crate::sse::Event;
use crate::streaming::{Assemble, Problem, Progress};

/// What the API sends behind the last chunk.
const DONE: &str = "[DONE]";

impl Assemble for Assembler<'_> {
    fn add(&mut self, event: &Event<'_>, tell: &mut impl FnMut(Delta)) -> Result<Progress, Problem> {
        let data = event.data.trim_ascii();
        if data.is_empty() {
            return Ok(Progress::Goes);
        }
        if data == DONE {
            return Ok(Progress::Done);
        }
        if event.name == "error" && event.is_whole {
            return Err(Problem::Api(data.to_owned()));
        }
        self.add_json(data, tell)?;
        Ok(Progress::Goes)
    }

    fn has_begun(&self) -> bool {
        self.has_begun()
    }

    fn is_finished(&self) -> bool {
        self.is_finished()
    }

    fn into_response(self) -> ChatResponse {
        self.into_response()
    }
}
