//! The streamed answer: events, each a chunk of the response.

use tool_core::{ChatResponse, Delta};

use super::assembler::Assembler;
use super::response::Completion;
use crate::quirks;
use crate::sse::Event;
use crate::streaming::{Assemble, Problem, Progress};

/// What the API sends behind the last chunk.
const DONE: &str = "[DONE]";

impl Assemble for Assembler {
    fn add(&mut self, event: &Event<'_>, tell: &mut impl FnMut(Delta)) -> Result<Progress, Problem> {
        let data = event.data.trim_ascii();
        if data.is_empty() {
            return Ok(Progress::Goes);
        }
        if data == DONE {
            return Ok(Progress::Done);
        }
        if event.name == "error" {
            return Err(Problem::Api(data.to_owned()));
        }
        let chunk: Completion<'_> =
            serde_json::from_str(data).map_err(|why| Problem::Unreadable(why.to_string()))?;
        if chunk.error.is_some() || (chunk.choices.is_none() && quirks::api_error(data).is_some()) {
            return Err(Problem::Api(data.to_owned()));
        }
        self.add_piece(chunk, tell)?;
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
