//! Tools of MCP servers, against servers of every kind, good and bad.

mod asking;
mod bounds;
mod broken;
mod eras;
mod hostile;
mod listing;
mod logs;
mod older;
mod pinning;
mod processes;
mod resources;
mod results;
mod running;
mod secrets;
pub(crate) mod support;
mod tasks;
mod transports;
mod trust;
