//! Drives a run with its agent's model, tools, memory and hooks.

mod question_rules;
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
mod calls;
mod costs;
mod lending;
mod model_request;
mod steps;

pub(super) use self::inside::Inside;
pub(super) use self::lease::HeldLease;
pub(super) use self::lending::Lending;
pub(super) use self::opening::open_run;
pub(super) use self::question_rules::{QuestionError, QuestionRules, Uncounted};
pub use self::run_driver::RunDriver;
