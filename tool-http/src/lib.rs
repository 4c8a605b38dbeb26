//! The HTTP that `tool-openai`, `tool-anthropic`, `tool-mcp`, `tool-web` and `tool-restate` share.
//!
//! **This crate is for its sister crates**: semantic versioning holds for what they use, and for nothing else, so that two patch
//! releases of them can meet in one program. Its API has types of `axum`, `hyper` and `reqwest`; a new major version of one of these
//! is a new minor version of this crate. It is published because they depend on it, and knows neither MCP nor the APIs of OpenAI and
//! Anthropic.
//!
//! - `client` (feature `client`): connections, TLS, bounded bodies, server-sent events, retries, redaction; responses,
//!   streams and errors of models.
//! - `server` (feature `server`): keys, `Host` and `Origin`, limits, forms of responses, connections, shutdown.
//! - [`Backoff`]: the delays between attempts, and [`LONGEST_TIMEOUT`]; [`random_id`].

// What several network crates need is here, because a fix must be made once.

// Links from the other crates do not depend on the order in which they are documented.
#![doc(html_root_url = "..")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod backoff;
mod ids;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "server")]
pub mod server;

pub use self::backoff::{Backoff, LONGEST_TIMEOUT};
pub use self::ids::random_id;
