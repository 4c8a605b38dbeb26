//! The MCP server with the client of the official SDK over every kind of connection, and with clients that violate the
//! protocol.

mod approving;
mod asking;
mod calling;
mod cancelling;
pub(crate) mod client;
mod guarding;
mod hostile;
mod hosts;
mod limits;
mod listing;
mod newest;
mod notifications;
mod output_schemas;
mod owners;
mod protecting;
mod replacing;
mod stdio;
mod stopping;
mod task_faults;
mod task_rules;
mod tasks;
mod tools;
mod wrong;
