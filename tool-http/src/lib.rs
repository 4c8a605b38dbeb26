//! The HTTP that `tool-openai` and `tool-mcp` share.
//!
//! **This crate is an implementation detail of those two and has no stability promise**: it changes with them, in any release.
//! It is published because they depend on it, and knows neither of their protocols.
//!
//! - [`client`](mod@client) (feature `client`): TLS, bounded bodies, server-sent events, redaction.
//! - [`server`](mod@server) (feature `server`): keys, `Host` and `Origin`, limits, connections, shutdown.
//! - [`Backoff`]: the delays between attempts.

#![warn(clippy::print_stdout, clippy::print_stderr)]

mod backoff;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "server")]
pub mod server;

pub use self::backoff::Backoff;
