//! Tools of MCP servers.

mod call;
mod child;
mod connection;
mod envelope;
mod error;
mod fingerprint;
mod http;
mod inbox;
mod lines;
mod listing;
mod live;
mod log;
mod names;
mod observed;
mod output;
mod schema;
mod secrets;
mod server;
mod server_tool;
mod settings;
mod tool;
mod tools;

pub use self::error::McpError;
pub use self::fingerprint::{Change, Difference, Fingerprint};
pub use self::listing::McpProblem;
pub use self::log::McpLog;
pub use self::server::McpServer;
pub use self::tool::McpTool;
pub use self::tools::McpTools;
