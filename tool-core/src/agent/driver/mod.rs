//! Drives a run with its agent's model, tools, memory and hooks.

mod sent;
mod offer;
mod hold;
mod lease;
mod parts;
mod run_driver;
mod held;
mod round;
mod job;
mod work;
mod interruption;
mod opening;
mod storage;
mod inbox;
mod review;
mod costs;
mod compactor;
mod model_request;
mod emitting;
mod summarizing;
mod compacting;
mod offering;
mod deciding;
mod answers;
mod steps;
mod agent_call;
mod run_tree;
mod tree_calls;
mod calls;
mod remote_steps;

pub(super) use self::agent_call::AskedAgent;
pub(super) use self::lease::HeldLease;
pub use self::remote_steps::RunDriverExt;
pub use self::run_driver::RunDriver;
