//! The loop between a model and its tools as a state machine: all of its rules, no I/O and no clock.
//!
//! `state` has the data of a [`Run`], `turn` the calls of one reply, and `call` the state of one call. `transitions` decides the next
//! step and records its outcome; `normalize` corrects the calls of a reply, and `call_ids` their ids. `repeated_calls`, `approval`, `wait`,
//! `limits`, `handoff`, `inner` (the runs of agents as tools), `undo` and `finish` each have one further rule. `remote` is for
//! drivers that execute calls in other processes. `saved` and `saved_stage` are the stored form.

mod answer;
mod approval;
mod call;
mod call_ids;
mod call_path;
mod error;
mod error_policy;
mod finish;
mod handoff;
mod id;
mod inner;
mod limits;
mod normalize;
#[cfg(feature = "unstable-internals")]
mod remote;
mod repeated_calls;
mod revision;
mod saved;
mod saved_stage;
mod state;
mod step;
mod stop_reason;
mod transitions;
mod turn;
mod undo;
mod wait;

pub use self::answer::Answer;
pub use self::approval::Approval;
pub use self::call_path::CallPath;
pub use self::error::{RunError, RunErrorKind};
pub(crate) use self::error_policy::ErrorPolicies;
pub use self::error_policy::ErrorPolicy;
pub use self::handoff::Handoff;
pub(crate) use self::handoff::{AgentSettings, QuestionSettings};
pub use self::id::RunId;
pub use self::inner::InnerRun;
pub(crate) use self::limits::MAX_DEPTH;
pub use self::limits::RunLimits;
pub(crate) use self::normalize::{NormalizedResponse, clean_name};
pub use self::revision::RunRevision;
pub use self::state::{Run, StepError};
pub use self::step::Step;
pub use self::stop_reason::StopReason;
pub(crate) use self::undo::may_be_undo;
pub use self::wait::{Decision, ResolveError, ResolveErrorKind, Wait, WaitReason};

/// Returns `true` if a field need not be stored.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
