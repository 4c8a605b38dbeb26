//! What stands for the first messages of a conversation.
//!
//! It becomes a compaction of the next run (`Run::carry_summary`), because its messages must stay whole for people, and readable for the model.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::run::Run;

/// What the model reads in place of the first messages of a conversation, because a run of it was
/// [compacted](crate::agent::Compaction).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationSummary {
    /// The number of messages that it stands for.
    pub messages: usize,
    /// The text.
    pub text: String,
    /// The same as JSON, in the form of the provider that wrote it, if one did. Only the agent reads it. A store must keep it unchanged, because
    /// the text may say nothing without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_provider: Option<String>,
}

impl ConversationSummary {
    /// Returns its length in bytes.
    pub(super) fn len(&self) -> usize {
        self.text.len() + self.by_provider.as_ref().map_or(0, String::len)
    }

    /// Returns the summary that a run leaves to the next one of its conversation, once the run is part of that.
    #[doc(hidden)] // For the crates of this project.
    #[must_use]
    pub fn of_run(run: &Run) -> Option<Self> {
        let (messages, text, by_provider) = run.summarized_of_conversation()?;
        let by_provider = by_provider.and_then(|one| serde_json::to_string(&one).ok());
        Some(Self { messages, text: text.to_owned(), by_provider })
    }
}

/// Omits the text, because conversations are private.
impl fmt::Debug for ConversationSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConversationSummary").field("messages", &self.messages).finish_non_exhaustive()
    }
}
