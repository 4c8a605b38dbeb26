//! Durable, distributed runs of `tool_core`'s agents on Restate.
//!
#![cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#![doc = include_str!("../docs/guide.md")]
#![allow(
    deprecated,
    reason = "only services declared as traits can have names of their own, see `options::named`"
)]

mod clock;
mod limit;
mod path;
mod names;
mod context;
mod error;
mod http;
mod checks;
mod options;
mod signals;
mod events;
mod tools;
mod settings;
mod step;
mod turn;
mod calls;
mod conversations;
mod drive;
mod runs;
mod client;
mod serving;
mod worker;

pub use self::checks::WorkerError;
pub use self::client::{
    Client, DecisionReceipt, Events, ListFilter, ListedStatus, RemoteAgent, RemoteAsk, RemoteOutcome,
    RemoteRun, RunListing, register,
};
pub use self::error::{Error, ErrorKind};
pub use self::names::RunFailure;
pub use self::tools::ChangedTools;
pub use self::worker::Worker;
