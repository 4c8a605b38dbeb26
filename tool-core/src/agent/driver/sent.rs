//! The messages to send, if they differ from the messages of the run.

use crate::agent::compaction::{CompactedView, Reader};
use crate::agent::tool_search::SentMessages;
use crate::model::{ChatRequest, Message};
use crate::run::Run;

/// The messages to send, if they differ from the messages of the run.
#[derive(Clone, Default)]
pub(in crate::agent) struct Sent {
    /// The compacted messages, after the first compaction.
    pub(super) view: Option<CompactedView>,
    /// The tool that reads what is not in them in full, once it is offered.
    pub(super) reader: Option<Reader>,
    /// The messages with converted calls, if tools are called through another tool.
    pub(super) through: Option<SentMessages>,
}

impl Sent {
    /// Returns the messages before calls are converted.
    pub(super) fn messages<'a>(&'a self, run: &'a Run) -> &'a [Message] {
        self.view.as_ref().map_or(run.messages(), |view| &view.messages)
    }

    pub(super) fn add_to<'a>(&'a self, request: ChatRequest<'a>) -> ChatRequest<'a> {
        let start = self.view.as_ref().map_or(0, |view| view.reasoning_start);
        let request = request.with_reasoning_start(start);
        match (&self.through, &self.view) {
            (Some(sent), _) => request.with_other_messages(&sent.messages, Some(&sent.cache)),
            (None, Some(view)) => request.with_other_messages(&view.messages, Some(&view.cache)),
            (None, None) => request,
        }
    }
}
