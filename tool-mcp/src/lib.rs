//! Tools from any server of the [Model Context Protocol](https://modelcontextprotocol.io) for the agents of `tool-core`,
//! and tools of one's own for any MCP host.
//!
//! - [`McpServer`] connects to a server and provides its tools (feature `client`, enabled by default).
//! - [`oauth`] lets users log in to servers that need it.
//! - [`server`] serves a set of tools over stdio or HTTP (feature `server`).
//! - `oauth::SqliteCredentials` stores logins in a database (feature `sqlite`).
//! - `testing` is an authorization server for tests (feature `testing`).
//! - [`guide`] is the introduction; the other pages are in [`tool_core::guide`].
//!
//! The protocol is implemented by the official SDK, `rmcp`. What returns its types needs the feature `unstable-rmcp`, and can change
//! with any version.

// Links from the other crates do not depend on the order in which they are documented.
#![doc(html_root_url = "..")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[cfg(any(feature = "client", feature = "server"))]
mod quiet;
#[cfg(feature = "client")]
pub mod oauth;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "client")]
pub mod guide;

#[cfg(feature = "client")]
pub use self::client::{
    Change, Difference, Fingerprint, McpError, McpErrorKind, McpLog, McpProblem, McpServer, McpTool,
    McpTools, McpUserTools,
};
#[cfg(feature = "unstable-rmcp")]
pub use rmcp;
