//! The record of what a run hides of its conversation from the model.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::settings::is_default;
use crate::content::Content;
use crate::model::AssistantMessage;
use crate::tool::{Timestamp, ToolExecution};
use crate::transcript::Transcript;

/// The number of compactions in a row that hide too little or fail, after which only a request that is too long causes another one.
pub(crate) const MAX_USELESS: u8 = 3;

/// One [compaction](crate::agent::Compaction) of a run: what the model no longer reads of the messages before it. The messages themselves
/// stay part of the run.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CompactionRecord {
    /// The positions of the results whose outputs are replaced by a line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) cleared: Vec<usize>,
    /// The positions among these of which nothing remains.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) emptied: Vec<usize>,
    /// The replies before this position are shown without reasoning.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) unreasoned: usize,
    /// The messages before this position are hidden, other than instructions and the question.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) hidden: usize,
    /// The number of executions before.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) executions: usize,
    /// What takes the place of the hidden messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) summary: Option<String>,
    /// It is what earlier runs of the conversation have left, whose summary stands for so many of the stored messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) carried: Option<usize>,
    /// The summary in the form of the provider that wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) by_provider: Option<ProviderSummary>,
}

/// A summary that the provider wrote. It is sent first, before the messages that follow those that it summarizes, because reasoning in these is
/// bound to that.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProviderSummary {
    pub(crate) message: AssistantMessage,
    /// What the model must not forget of what is summarized, and the position of the message that follows it.
    pub(crate) note: (usize, Content),
}

impl ProviderSummary {
    /// Returns `true` if others can read it, too.
    pub(crate) fn has_text(&self) -> bool {
        !self.message.text.is_empty()
    }
}

/// What a run leaves to the next one of its conversation beside a summary. Positions are those of the stored messages.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Carried {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) by_provider: Option<ProviderSummary>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) cleared: Vec<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) emptied: Vec<usize>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) unreasoned: usize,
}

impl CompactionRecord {
    /// Returns `true` if it hides nothing from this position on.
    pub(super) fn is_before(&self, position: usize) -> bool {
        self.hidden.max(self.unreasoned) <= position
            && self.cleared.iter().all(|one| *one < position)
            && self.by_provider.as_ref().is_none_or(|one| one.note.0 <= position)
    }

    /// Adds the compactions of a run to its transcript, each behind the last calls before it.
    pub(super) fn add_to_transcript<'a>(
        compactions: &'a [Self],
        executions: &'a [ToolExecution],
        transcript: Transcript<'a>,
    ) -> Transcript<'a> {
        compactions.iter().fold(transcript, |transcript, one| {
            let last = one.executions.checked_sub(1).and_then(|last| executions.get(last));
            let hidden = match (one.summary(), one.cleared.len()) {
                (Some(text), _) => format!("a summary stands for {} messages\n{text}", one.hidden),
                (None, 0) => "earlier reasoning is hidden from the model".to_owned(),
                (None, outputs) => format!("{outputs} outputs are hidden from the model"),
            };
            transcript.with_compaction(last.map(|last| &*last.call().id), hidden)
        })
    }

    /// Returns the number of outputs that the model no longer reads in full.
    #[must_use]
    pub fn cleared_outputs(&self) -> usize {
        self.cleared.len()
    }

    /// Returns the number of messages at the beginning of the run that a summary stands for. Instructions and the question are among them,
    /// and are not hidden.
    #[must_use]
    pub fn summarized_messages(&self) -> usize {
        self.hidden
    }

    /// Returns the number of messages at the beginning of the run whose reasoning the model no longer reads.
    #[must_use]
    pub fn without_reasoning(&self) -> usize {
        self.unreasoned
    }

    /// Returns the text that takes the place of these messages.
    #[must_use]
    pub fn summary(&self) -> Option<&str> {
        self.summary.as_deref()
    }
}

/// Omits the summary, because conversations are private.
impl fmt::Debug for CompactionRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompactionRecord")
            .field("cleared_outputs", &self.cleared.len())
            .field("summarized_messages", &self.hidden)
            .finish_non_exhaustive()
    }
}

/// What a run knows about its requests, for compactions and for the use of the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ContextSize {
    /// The tokens of the last request and its reply, as the provider reported them.
    pub(crate) tokens: u64,
    /// The number of messages that these contain.
    pub(crate) messages: usize,
    /// The tokens of the last request alone, if the next one begins with its messages.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) sent: u64,
    /// The time of the last request.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) asked: Timestamp,
    /// The tokens that were sent again since the last compaction and could have been hidden.
    pub(crate) reread: u64,
    /// The number of compactions in a row that hid too little, or failed.
    pub(crate) useless: u8,
    /// The number of messages at the last one of them. It is not repeated before there are more.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) useless_at: usize,
    /// The number of times in a row that the provider failed to summarize.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) provider_failures: u8,
    /// The model whose provider has refused to summarize, or failed too often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refused_by: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_before_all_that_it_hides() {
        let note =
            |at| ProviderSummary { message: AssistantMessage::text("so far"), note: (at, "so far".into()) };
        let records = [
            CompactionRecord { cleared: vec![2, 4], ..CompactionRecord::default() },
            CompactionRecord { hidden: 5, ..CompactionRecord::default() },
            CompactionRecord { unreasoned: 5, cleared: vec![2], ..CompactionRecord::default() },
            CompactionRecord { hidden: 3, by_provider: Some(note(5)), ..CompactionRecord::default() },
        ];
        for record in records {
            assert_eq!([4, 5].map(|position| record.is_before(position)), [false, true], "{record:?}");
        }
    }
}
