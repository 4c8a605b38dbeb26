//! Tools from any server of the [Model Context Protocol](https://modelcontextprotocol.io) for the agents of `tool-core`, and
//! one's own tools for any MCP host.
//!
//! The protocol is that of the official SDK, `rmcp`.

#![warn(clippy::print_stdout, clippy::print_stderr)]

#[cfg(feature = "client")]
mod client;
#[cfg(feature = "server")]
pub mod server;

#[cfg(feature = "client")]
pub use self::client::{
    Change, Difference, Fingerprint, McpError, McpLog, McpProblem, McpServer, McpTool, McpTools,
};
#[cfg(feature = "client")]
pub use rmcp;
