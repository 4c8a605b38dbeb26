//! The MCP client against well-behaved and misbehaving servers.

mod broken;
mod listing;
mod results;
mod running;
#[path = "server/tools.rs"]
mod served;
mod support;
mod transports;
mod trust;
