//! What a provider of tools has asked before a turn, and the replies.

use serde::{Deserialize, Serialize};

use super::call_notes::CallNotes;

/// The questions of one provider. A provider with the same name gets none of the replies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProviderNotes {
    /// The agent that the run was handed off to, whose provider it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    pub(crate) name: String,
    /// Its position among the providers of this name.
    #[serde(default)]
    pub(crate) number: usize,
    pub(crate) notes: CallNotes,
}

impl ProviderNotes {
    pub(crate) fn new(agent: Option<&str>, name: &str, number: usize, notes: CallNotes) -> Self {
        Self { agent: agent.map(str::to_owned), name: name.to_owned(), number, notes }
    }

    pub(crate) fn is_of_agent(&self, agent: Option<&str>) -> bool {
        self.agent.as_deref() == agent
    }

    pub(crate) fn is_of(&self, name: &str, number: usize) -> bool {
        (&*self.name, self.number) == (name, number)
    }

    /// Returns what distinguishes it from others, for the ids of what it waits for.
    pub(crate) fn key(&self) -> (Option<&str>, &str, usize) {
        (self.agent.as_deref(), &self.name, self.number)
    }
}
