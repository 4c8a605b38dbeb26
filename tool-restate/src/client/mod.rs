//! The client: it starts runs, waits for them, and decides about their calls.

mod remote_agent;
mod remote_run;
mod reader;
mod remote_ask;
mod admin;
mod listing;

pub use self::admin::register;
pub use self::listing::{ListFilter, ListedStatus, RunListing};
pub use self::reader::Events;
pub use self::remote_agent::{Client, RemoteAgent};
pub use self::remote_ask::RemoteAsk;
pub use self::remote_run::{DecisionReceipt, RemoteOutcome, RemoteRun};
