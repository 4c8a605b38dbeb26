//! Checks of what agents do, runs that production has kept as tests, and rehearsals of those that wait.
//!
//! ```
//! use tool_core::testing::ScriptedModel;
//! use tool_core::{Agent, call, tool, tools};
//! use tool_testing::Checks;
//!
//! /// Finds an order.
//! #[tool]
//! fn find_order(id: u32) -> String {
//!     format!("order {id}: 50 EUR")
//! }
//!
//! /// Pays back a part of an order.
//! #[tool]
//! fn refund(order: u32, cents: u32) {}
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> tool_testing::Result {
//! let model = ScriptedModel::new()
//!     .calls("find_order", r#"{"id": 7}"#)
//!     .calls("refund", r#"{"order": 7, "cents": 5000}"#)
//!     .says("Done.");
//! let desk = Agent::builder(model).tools(tools![find_order, refund]).build()?;
//!
//! let answer = desk.ask("Refund order 7").await?;
//! answer
//!     .check_calls()
//!     .first(call!(find_order { id: 7 }).ok())
//!     .then(call!(refund { cents: ..=5_000, .. }))
//!     .times(call!(refund), 1..=1)
//!     .never(call!("send_mail"))
//!     .check()?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Checks`] are methods of answers, runs and errors of runs; [`call!`](tool_core::call) writes what is expected of a call. Everything happens in the
//! process of the test: tools are executed, and the model is the agent's own, mostly a [scripted one](tool_core::testing::ScriptedModel).
//!
//! [`check_runs`] repeats kept runs with the present program, and [`rehearse`](rehearse()) says what becomes of those that have not ended: see the
//! [guide]. Nothing is executed there.

#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod guide;

mod error;
mod seen;
mod failure;
mod calls;
mod cost;
mod checks;
mod replay;
mod kept;
mod rehearsal;

pub use self::calls::CheckCalls;
pub use self::checks::Checks;
pub use self::cost::CheckCost;
pub use self::error::{Error, Result};
pub use self::failure::CheckError;
pub use self::kept::{ExportRuns, KeptRuns, Redaction, check_runs, export_run, export_runs};
pub use self::rehearsal::{Rehearsal, RehearsedOutcome, RehearsedRun, RunSource, rehearse, rehearse_with};
pub use self::replay::{Difference, DifferenceKind, Note, OfferChange, Replay, ReplayOutcome, replay};
