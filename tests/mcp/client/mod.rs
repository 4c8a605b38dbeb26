//! Tools of MCP servers, against servers of every kind, good and bad.

mod broken;
mod listing;
mod results;
mod running;
mod support;
mod transports;
mod trust;
