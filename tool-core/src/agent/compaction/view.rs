//! The messages of a run as the model sees them, once it was compacted.

use super::reader::{READ_OUTPUT, reader};
use crate::model::{Message, RequestCache};
use crate::run::Run;
use crate::toolset::ToolSet;

/// The messages of a run as the model sees them.
#[derive(Default)]
pub(in crate::agent) struct CompactedView {
    pub(in crate::agent) messages: Vec<Message>,
    pub(in crate::agent) cache: RequestCache,
    /// The number of messages of the run, and of its compactions, that it contains.
    taken: usize,
    compactions: usize,
    reader: ToolSet,
    /// The last tools, without the reader and with it.
    tools: Option<(ToolSet, ToolSet)>,
}

impl CompactedView {
    /// Adds the messages that were not sent yet. After a compaction, all are looked at again.
    pub(in crate::agent) fn update(&mut self, run: &Run) {
        let compactions = run.compactions().len();
        if self.compactions != compactions || run.messages().len() < self.taken {
            let reader = ToolSet::default().with(reader(run)).unwrap_or_default();
            *self = Self { compactions, reader, ..Self::default() };
        }
        let hidden = run.hidden();
        let new: Vec<_> = run.visible(self.taken, &hidden).map(|message| message.into_owned()).collect();
        self.messages.extend(new);
        self.taken = run.messages().len();
    }

    /// Adds the tool that reads what is hidden, unless its name is taken.
    pub(in crate::agent) fn with_reader(&mut self, tools: ToolSet) -> ToolSet {
        // A model that is offered nothing may not be able to call anything.
        if tools.is_empty() || tools.get(READ_OUTPUT).is_some() {
            return tools;
        }
        match &self.tools {
            Some((last, with)) if last.is_shared_with(&tools) => with.clone(),
            _ => {
                let with = tools.clone().union(&self.reader).unwrap_or_else(|_| tools.clone());
                self.tools = Some((tools, with.clone()));
                with
            }
        }
    }
}
