//! Drives a run with its agent's model, tools, memory and hooks.

mod question_rules;
mod inside;
mod offer;
mod lease;
mod run_driver;
mod interruption;
mod storage;
mod inbox;
mod calls;
mod costs;
mod steps;

pub(super) use self::inside::Inside;
pub(super) use self::question_rules::{QuestionError, QuestionRules};
pub use self::run_driver::RunDriver;
