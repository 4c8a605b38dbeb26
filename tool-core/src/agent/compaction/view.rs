//! The messages of a run as the model sees them, once it was compacted.

use crate::model::{ChatModel, Message, RequestCache};
use crate::run::Run;

/// The messages of a run as the model sees them.
#[derive(Clone, Default)]
pub(in crate::agent) struct CompactedView {
    pub(in crate::agent) messages: Vec<Message>,
    pub(in crate::agent) cache: RequestCache,
    /// The position of the first message whose reasoning the model has to read.
    pub(in crate::agent) reasoning_start: usize,
    /// The number of messages of the run, and of its compactions, that it contains.
    taken: usize,
    compactions: usize,
}

impl CompactedView {
    /// Adds the messages that were not sent yet. After a compaction, all are looked at again. Another model has a view of its own.
    pub(in crate::agent) fn update(&mut self, run: &Run, model: &dyn ChatModel) {
        let compactions = run.compactions().len();
        if self.compactions != compactions || run.messages().len() < self.taken {
            *self = Self { compactions, ..Self::default() };
        }
        let hidden = run.hidden_as_sent(model);
        if self.taken == 0 {
            let rest = run.visible(run.unreasoned(), &hidden).count();
            self.reasoning_start = run.visible(0, &hidden).count().saturating_sub(rest);
        }
        let new: Vec<_> = run.visible(self.taken, &hidden).map(|message| message.into_owned()).collect();
        self.messages.extend(new);
        self.taken = run.messages().len();
    }
}
