//! The loop as a state machine: every rule of it, and neither I/O nor clock.

mod answer;
mod approval;
mod calls;
mod ending;
mod ends;
mod error;
mod id;
mod ids;
mod limits;
mod moves;
mod policy;
mod saved;
mod state;
mod step;
mod turn;
mod undo;

pub use self::answer::Answer;
pub use self::approval::Approval;
pub(crate) use self::error::Kind;
pub use self::error::{RunError, RunErrorKind};
pub use self::id::RunId;
pub use self::limits::RunLimits;
pub(crate) use self::policy::ErrorPolicies;
pub use self::policy::ErrorPolicy;
pub use self::state::{Run, StepError};
pub use self::step::Step;
