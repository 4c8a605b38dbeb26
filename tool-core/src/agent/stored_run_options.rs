//! The options of an agent for its stored runs.
//!
//! Dropping a run in progress keeps it in the store, because a page that is closed must not take back what was approved on it. With
//! `OnDrop::Cancel` it is cancelled there, and the undo waits for the next resume, because nothing may execute a tool after the caller has
//! let go of the run.

use std::sync::OnceLock;
use std::time::Duration;

/// The duration of the lease of a run, unless it is set.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// What dropping the future, the stream or the driver of a stored run means, set with
/// [`on_drop`](crate::agent::AgentBuilder::on_drop). It applies to runs in progress; one that waits or has failed stays
/// stored. If the process dies, or drops the run outside of a tokio runtime, the run is
/// [interrupted](crate::memory::RunStatus::Interrupted).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDrop {
    /// The run is cancelled in the store: it is removed, or [marked as cancelled](crate::memory::RunStatus::Cancelled) if calls
    /// have to be undone, which happens when it is resumed.
    Cancel,
    /// The run can be resumed from where it was, and [`recover`](crate::Agent::recover) does so.
    #[default]
    Keep,
}

/// What happens to a question in a conversation in which another run waits for an approval or a result, set with
/// [`while_waiting`](crate::agent::AgentBuilder::while_waiting). A question always goes on with a run of its conversation that was
/// interrupted, or has failed after its calls had effects, so that what they have done is known, and is refused while a driver works on one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhileWaiting {
    /// The question is refused with [`RunErrorKind::ConversationWaits`](crate::RunErrorKind::ConversationWaits), which names the
    /// run that waits. Neither question can then be answered without knowledge of the other.
    #[default]
    Refuse,
    /// The question is added to the run that waits, like [`Agent::say`](crate::Agent::say): the model reads it once the run goes on.
    GoOn,
}

/// The options of an agent for its stored runs.
pub(super) struct StoredRunOptions {
    pub(super) lease: Duration,
    pub(super) max_age: Option<Duration>,
    /// Set once: by the application, or by who shows its runs.
    pub(super) keep_finished: OnceLock<Duration>,
    pub(super) on_drop: OnDrop,
    pub(super) while_waiting: WhileWaiting,
}

impl Default for StoredRunOptions {
    fn default() -> Self {
        Self {
            lease: DEFAULT_LEASE,
            max_age: None,
            keep_finished: OnceLock::new(),
            on_drop: OnDrop::default(),
            while_waiting: WhileWaiting::default(),
        }
    }
}
