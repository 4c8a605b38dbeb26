//! The HTTP that `tool-openai`, `tool-anthropic` and `tool-mcp` share.
//!
//! **This crate is for its sister crates**: semantic versioning holds for what they use, and for nothing else. It is published
//! because they depend on it, and knows neither MCP nor the APIs of OpenAI and Anthropic.
//!
//! - [`client`](mod@client) (feature `client`): connections, TLS, bounded bodies, server-sent events, retries, redaction.
//! - [`server`](mod@server) (feature `server`): keys, `Host` and `Origin`, limits, connections, shutdown.
//! - [`Backoff`]: the delays between attempts, and [`LONGEST_TIMEOUT`].

// Links from the other crates do not depend on the order in which they are documented.
#![doc(html_root_url = "..")]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod backoff;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "server")]
pub mod server;

use std::time::Duration;

pub use self::backoff::Backoff;

/// The longest timeout that is respected. The time of the clock and a longer one, such as [`Duration::MAX`], could have no sum.
pub const LONGEST_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);
