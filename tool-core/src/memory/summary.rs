//! What stands for the first messages of a conversation.
//!
//! It becomes a compaction of the next run (`Run::carry_compaction`), because its messages must stay whole for people, and readable for the model.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::run::Run;

/// What the model reads in place of the first messages of a conversation, because a run of it was
/// [compacted](crate::agent::Compaction).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionSummary {
    /// The number of messages that it stands for.
    pub messages: usize,
    /// The text. It is empty if no messages are hidden, but outputs in them.
    pub text: String,
    /// What else is hidden, and the summary in the form of the provider that wrote it, if one did, as JSON. Only the agent reads it. A store
    /// must keep it unchanged, because the text may say nothing without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<String>,
}

impl CompactionSummary {
    /// Returns its length in bytes.
    pub(super) fn len(&self) -> usize {
        self.text.len() + self.details.as_ref().map_or(0, String::len)
    }

    /// Returns the summary that a run leaves to the next one of its conversation, once the run is part of that.
    #[must_use]
    pub fn of_run(run: &Run) -> Option<Self> {
        let (messages, text, carried) = run.compaction_of_conversation()?;
        let details = serde_json::to_string(&carried).ok();
        Some(Self { messages, text: text.to_owned(), details })
    }
}

/// Omits the text, because conversations are private.
impl fmt::Debug for CompactionSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompactionSummary").field("messages", &self.messages).finish_non_exhaustive()
    }
}
