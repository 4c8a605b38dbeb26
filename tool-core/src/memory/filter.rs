//! Which stored runs a list contains.

use std::time::Duration;

use crate::memory::{RunStatus, RunSummary};
use crate::model::ConversationId;

/// A filter for [lists](crate::memory::RunStore::list_runs) of stored runs. A run must meet all that is set; by default, every run does.
///
/// ```
/// use tool_core::memory::{InMemoryStore, RunFilter, RunStatus, RunStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let waiting = RunFilter::new().conversation("user-7").status(RunStatus::Waiting);
/// assert!(InMemoryStore::new().list_runs(&waiting).await?.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct RunFilter {
    /// The id under which the run is stored.
    pub id: Option<String>,
    /// The name of the agent that was asked.
    pub agent: Option<String>,
    /// The conversation that the run belongs to.
    pub conversation: Option<ConversationId>,
    /// The status.
    pub status: Option<RunStatus>,
    /// The shortest time since the state was stored.
    pub min_age: Option<Duration>,
}

impl RunFilter {
    /// Creates a filter that admits every run.
    pub fn new() -> Self {
        Self::default()
    }

    /// Admits only the run that is stored under this id.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Admits only runs of the agent with this name.
    pub fn agent(mut self, name: impl Into<String>) -> Self {
        self.agent = Some(name.into());
        self
    }

    /// Admits only runs of this conversation.
    pub fn conversation(mut self, id: impl Into<ConversationId>) -> Self {
        self.conversation = Some(id.into());
        self
    }

    /// Admits only runs with this status.
    pub fn status(mut self, status: RunStatus) -> Self {
        self.status = Some(status);
        self
    }

    /// Admits only runs that were not stored for this time.
    pub fn min_age(mut self, age: Duration) -> Self {
        self.min_age = Some(age);
        self
    }

    /// Returns `true` if a run meets the filter.
    #[must_use]
    pub fn admits(&self, run: &RunSummary) -> bool {
        self.id.as_ref().is_none_or(|id| *id == run.id)
            && self.agent.as_ref().is_none_or(|agent| run.agent.as_ref() == Some(agent))
            && self.conversation.as_ref().is_none_or(|id| run.conversation.as_ref() == Some(id))
            && self.status.is_none_or(|status| status == run.status)
            && self.min_age.is_none_or(|age| run.age >= age)
    }
}
