//! The loop as a state machine: every rule of it, and neither I/O nor clock.

mod answer;
mod calls;
mod error;
mod execution;
mod state;
mod step;

pub use self::answer::Answer;
pub(crate) use self::error::Kind;
pub use self::error::RunError;
pub use self::execution::ToolExecution;
pub use self::state::{OutOfStep, Run};
pub use self::step::Step;
