//! Tools of MCP servers.

mod call;
mod config;
mod connection;
mod connection_manager;
mod error;
mod fetch_listing;
mod fingerprint;
mod http;
mod http_client;
mod json_scan;
mod line_transport;
mod listing;
mod log;
mod monitor;
mod output;
mod process;
mod progress;
mod schema;
mod server;
mod server_tool;
mod text;
mod tool;
mod tool_name;
mod tools;

pub use self::error::{McpError, McpErrorKind};
pub use self::fingerprint::{Change, Difference, Fingerprint};
pub use self::listing::McpProblem;
pub use self::log::McpLog;
pub use self::server::McpServer;
pub use self::tool::McpTool;
pub use self::tools::McpTools;
