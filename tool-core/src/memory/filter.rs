//! Which stored runs a list contains.

use std::time::Duration;

use crate::memory::{RunStatus, RunSummary};
use crate::model::{ConversationId, RunUser, setters};

/// A filter for [lists](crate::store::RunStore::list_runs) of stored runs. A run must meet all that is set; by default, every run does.
///
/// ```
/// use tool_core::memory::{InMemoryStore, RunFilter, RunStatus};
/// use tool_core::store::RunStore;
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
    /// The user whose run it is.
    pub user: Option<RunUser>,
    /// The status.
    pub status: Option<RunStatus>,
    /// The shortest time since the state was stored.
    pub min_age: Option<Duration>,
}

setters! {
    RunFilter {
        /// Admits only the run that is stored under this id.
        id(id: impl Into<String>) id = Some(id.into());
        /// Admits only runs of the agent with this name.
        agent(name: impl Into<String>) agent = Some(name.into());
        /// Admits only runs of this conversation.
        conversation(id: impl Into<ConversationId>) conversation = Some(id.into());
        /// Admits only runs [of this user](crate::run::Run::user).
        user(user: impl Into<RunUser>) user = Some(user.into());
        /// Admits only runs with this status.
        status(status: RunStatus) status = Some(status);
        /// Admits only runs that were not stored for this time.
        min_age(age: Duration) min_age = Some(age);
    }
}

impl RunFilter {
    /// Creates a filter that admits every run.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns `true` if a run meets the filter.
    #[must_use]
    pub fn admits(&self, run: &RunSummary) -> bool {
        self.id.as_ref().is_none_or(|id| *id == run.id)
            && self.agent.as_ref().is_none_or(|agent| run.agent.as_ref() == Some(agent))
            && self.conversation.as_ref().is_none_or(|id| run.conversation.as_ref() == Some(id))
            && self.user.as_ref().is_none_or(|user| run.user.as_ref() == Some(user))
            && self.status.is_none_or(|status| status == run.status)
            && self.min_age.is_none_or(|age| run.age >= age)
    }
}
