//! Tools as an MCP server, asked by the official SDK's client in every way that it has, and by who keeps to no protocol.

mod approving;
mod calling;
mod cancelling;
mod client;
mod guarding;
mod listing;
mod replacing;
mod stdio;
mod stopping;
mod telling;
mod tools;
mod wrong;
