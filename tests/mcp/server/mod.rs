//! The MCP server with the client of the official SDK over every kind of connection, and with clients that violate the
//! protocol.

mod approving;
mod calling;
mod cancelling;
mod client;
mod guarding;
mod limits;
mod listing;
mod owners;
mod replacing;
mod stdio;
mod stopping;
mod telling;
mod tools;
mod wrong;
