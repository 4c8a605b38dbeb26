//! The messages of a run as the model sees them, once it was compacted.

use crate::model::{Message, RequestCache};
use crate::run::Run;

/// The messages of a run as the model sees them.
#[derive(Default)]
pub(in crate::agent) struct CompactedView {
    pub(in crate::agent) messages: Vec<Message>,
    pub(in crate::agent) cache: RequestCache,
    /// The number of messages of the run, and of its compactions, that it contains.
    taken: usize,
    compactions: usize,
}

impl CompactedView {
    /// Adds the messages that were not sent yet. After a compaction, all are looked at again.
    pub(in crate::agent) fn update(&mut self, run: &Run) {
        let compactions = run.compactions().len();
        if self.compactions != compactions || run.messages().len() < self.taken {
            *self = Self { compactions, ..Self::default() };
        }
        let hidden = run.hidden();
        let new: Vec<_> = run.visible(self.taken, &hidden).map(|message| message.into_owned()).collect();
        self.messages.extend(new);
        self.taken = run.messages().len();
    }
}
