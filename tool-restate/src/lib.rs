//! Durable, distributed runs of `tool_core`'s agents on Restate.
//!
#![cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#![doc = include_str!("../docs/guide.md")]

#[allow(
    deprecated,
    reason = "only services declared as traits can have names of their own, see `worker::named`"
)]
mod calls;
mod client;
mod clock;
mod context;
#[allow(
    deprecated,
    reason = "only services declared as traits can have names of their own, see `worker::named`"
)]
mod conversations;
mod drive;
mod error;
#[allow(
    deprecated,
    reason = "only services declared as traits can have names of their own, see `worker::named`"
)]
mod events;
mod limit;
mod names;
mod path;
#[allow(
    deprecated,
    reason = "only services declared as traits can have names of their own, see `worker::named`"
)]
mod runs;
mod step;
mod tools;
mod turn;
mod worker;

pub use self::client::{Client, Events, Outcome, Question, RemoteAgent, Run, register};
pub use self::error::{Error, ErrorKind};
pub use self::names::RunFailure;
pub use self::worker::{ChangedTools, Worker, WorkerError};
