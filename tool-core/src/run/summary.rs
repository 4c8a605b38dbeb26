//! What a list of stored runs shows of a run without reading its state.
//!
//! A list of runs reads no states: each save stores a `RunSummary` beside them, and leases and inboxes are joined by the query, because ten
//! thousand runs take too long to read.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::revision::RunRevision;
use super::settings::is_default;
use super::state::Run;
use super::user_message::MessageVolume;
use super::wait::Wait;
use crate::model::{ConversationId, Message, RunUser, Usage};
use crate::tool::{Timestamp, ToolExecution};

/// The status of a stored run.
///
/// ```
/// use tool_core::Agent;
/// use tool_core::memory::{InMemoryStore, RunFilter, RunStatus};
/// use tool_core::testing::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = ScriptedModel::new().fails("the line is dead").says("Good morning!");
/// let agent = Agent::builder(model).run_store(InMemoryStore::new()).build()?;
/// agent.ask("Hello").await.unwrap_err();
/// for listed in agent.list_runs(&RunFilter::new()).await? {
///     assert_eq!(listed.status, RunStatus::Failed);
///     let stored = agent.stored_run(listed.id).await?.unwrap();
///     assert_eq!(agent.resume(stored.run).await?.text(), "Good morning!");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunStatus {
    /// Another driver works on the run, in this process or in another one. It cannot be resumed now;
    /// [messages](crate::Agent::say), [decisions](crate::Agent::decide) and a [cancellation](crate::Agent::cancel) reach it.
    RunningElsewhere,
    /// The driver of the run has ended without a result, for example because its process has died. Resuming it continues it.
    #[default]
    Interrupted,
    /// Every open call awaits an approval or a result. Resolve them, and resume the run.
    Waiting,
    /// The last attempt to drive the run failed, for example because the model could not be reached. Resuming it tries again.
    Failed,
    /// The run was cancelled. Resuming it undoes what its tools can undo, and ends it.
    Cancelled,
    /// The run was stopped or cancelled, and the attempt to undo its calls failed, for example because the application did not say [what the
    /// run has](crate::agent::RunSetup). Resuming it tries again; [`Agent::end`](crate::Agent::end) leaves everything as it is.
    NotUndone,
    /// The run has not been continued for the [maximal age](crate::agent::AgentBuilder::max_run_age). Resuming it ends it if its calls had no
    /// effects; otherwise a person decides what [becomes of it](crate::RunErrorKind::Expired).
    Expired,
    /// The run has ended, and is [kept](crate::agent::AgentBuilder::keep_finished) for its readers. Resuming it returns its outcome again.
    Finished,
}

/// What a [store](crate::store::RunStore) lists of a run. Reading it costs the same for a run of any length.
///
/// A store keeps the [summary](crate::store::RunChanges::summary) of the last save, for example as JSON, and adds what only it knows: the age,
/// the lease and the inbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunSummary {
    /// The id under which the run is stored.
    pub id: String,
    /// The revision of the stored state.
    pub revision: RunRevision,
    /// The [name](Run::agent_name) of the agent that was asked, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The [conversation](Run::conversation) that the run belongs to, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<ConversationId>,
    /// [Whose run it is](Run::user), if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<RunUser>,
    /// The status. In a [store](crate::store::RunStore::list_runs), it is the one that the stored state alone has;
    /// [`Agent::list_runs`](crate::Agent::list_runs) also considers the lease, the inbox and the age.
    pub status: RunStatus,
    /// The time at which the run goes on without a decision, because what it waits for expires or is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// The run waits for a decision that a [decider](crate::agent::Decider) can make, and no driver has asked all deciders of its agent: there
    /// was none, or the process died meanwhile.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaits_decider: bool,
    /// The number of turns so far.
    #[serde(default)]
    pub turns: u32,
    /// The tokens so far, and what they cost if that is known.
    #[serde(default)]
    pub usage: Usage,
    /// The revision of the save that has begun the log: a [whole](crate::store::RunChanges::is_whole) run begins it anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) begun: Option<RunRevision>,
    /// About the bytes of the messages and the outputs of a run that has [finished](RunStatus::Finished).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    /// How much users have sent to the run in messages. What is in its inbox is not part of it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub message_volume: MessageVolume,
    /// The time since the state was stored, by the clock of the store.
    #[serde(skip)]
    pub age: Duration,
    /// A driver holds the lease of the run.
    #[serde(skip)]
    pub is_leased: bool,
    /// The inbox of the run is not empty.
    #[serde(skip)]
    pub is_command_posted: bool,
    /// The inbox of the run has a cancellation.
    #[serde(skip)]
    pub is_cancellation_posted: bool,
}

/// Returns `true` if an agent of a name may drive a run: the one that was asked, or any agent if that has no name.
pub(crate) fn may_drive(agent_name: Option<&str>, asked: Option<&str>) -> bool {
    asked.is_none() || asked == agent_name
}

impl RunSummary {
    /// Returns `true` if the run has not been stored for this time.
    pub(crate) fn has_expired(&self, max_age: Option<Duration>) -> bool {
        max_age.is_some_and(|max_age| self.age >= max_age)
    }

    /// Returns `true` if an agent of this name may drive the run.
    pub(crate) fn is_driven_by(&self, agent_name: Option<&str>) -> bool {
        may_drive(agent_name, self.agent.as_deref())
    }

    /// Returns the status of a run whose stored state has the status `saved`.
    pub(crate) fn status_of(&self, saved: RunStatus, max_age: Option<Duration>) -> RunStatus {
        match saved {
            _ if self.is_leased => RunStatus::RunningElsewhere,
            RunStatus::Finished => RunStatus::Finished,
            RunStatus::NotUndone => RunStatus::NotUndone,
            _ if self.is_cancellation_posted => RunStatus::Cancelled,
            RunStatus::Waiting | RunStatus::Failed | RunStatus::Interrupted if self.has_expired(max_age) => {
                RunStatus::Expired
            }
            saved => saved,
        }
    }
}

impl RunStatus {
    /// Returns the name that a store can give a status in a column, such as `waiting`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RunningElsewhere => "running_elsewhere",
            Self::Interrupted => "interrupted",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::NotUndone => "not_undone",
            Self::Expired => "expired",
            Self::Finished => "finished",
        }
    }
}

impl Run {
    /// Returns what a list shows of the run if it is stored under this id.
    pub(crate) fn summary(&self, id: &str) -> Option<RunSummary> {
        Some(RunSummary {
            id: id.to_owned(),
            revision: self.revision()?.clone(),
            agent: self.head.agent_name.clone(),
            conversation: self.head.conversation.clone(),
            user: self.head.user.clone(),
            status: self.status(),
            due: self
                .is_blocked()
                .then(|| self.waits().iter().filter_map(|wait| wait.deadline).min())
                .flatten(),
            awaits_decider: self.awaits_decider(),
            // Once for each run, because it is walked.
            bytes: (self.status() == RunStatus::Finished).then(|| self.approximate_bytes()),
            message_volume: self.message_volume(),
            turns: self.turns(),
            usage: self.usage(),
            begun: self.head.stored.begun.clone(),
            age: Duration::ZERO,
            is_leased: false,
            is_command_posted: false,
            is_cancellation_posted: false,
        })
    }

    fn awaits_decider(&self) -> bool {
        let is_left = |wait: &Wait| self.deferred().contains(&wait.id);
        self.is_blocked()
            && self.waits_at_levels().any(|(wait, level)| wait.is_for_decider(level) && !is_left(&wait))
    }

    fn approximate_bytes(&self) -> usize {
        let outputs = self.tool_executions().iter().filter_map(ToolExecution::output);
        let data = outputs.filter_map(|output| Some(output.data()?.to_string().len()));
        self.messages().iter().map(Message::approximate_bytes).chain(data).sum()
    }

    /// Returns `true` if an agent of this name may drive the run: the one that was asked, or any agent if that has no name.
    pub(crate) fn is_driven_by(&self, agent_name: Option<&str>) -> bool {
        may_drive(agent_name, self.agent_name())
    }

    /// Returns the status that the state alone has.
    pub(crate) fn status(&self) -> RunStatus {
        match () {
            () if self.is_done() && self.head.stored.is_finished => RunStatus::Finished,
            () if self.is_undoing() && self.has_failed() => RunStatus::NotUndone,
            () if self.is_cancelled() => RunStatus::Cancelled,
            () if self.is_blocked() => RunStatus::Waiting,
            () if self.has_failed() => RunStatus::Failed,
            () => RunStatus::Interrupted,
        }
    }
}
