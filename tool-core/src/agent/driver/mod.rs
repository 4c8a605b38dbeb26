//! Drives a run with its agent's model, tools, memory and hooks.

mod inside;
mod offer;
mod hold;
mod lease;
mod run_driver;
mod interruption;
mod opening;
mod storage;
mod inbox;
mod review;
mod answers;
mod agent_call;
mod calls;
mod costs;
mod steps_elsewhere;
mod model_request;
mod emitting;
mod offering;
mod deciding;
mod steps;

pub(super) use self::agent_call::AgentCall;
pub(super) use self::lease::HeldLease;
pub(super) use self::opening::open_run;
pub use self::run_driver::RunDriver;
