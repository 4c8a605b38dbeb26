//! Tools of MCP servers.

mod text;
mod tool_name;
mod json_scan;
mod schema;
mod log;
mod progress;
mod invalid_response;
mod monitor;
mod process;
mod line_transport;
mod http_client;
mod http;
mod problem;
mod tool;
mod trust;
mod listing;
mod difference;
mod fingerprint;
mod error;
mod config;
mod connection;
mod fetch_listing;
mod connection_manager;
mod output;
mod call;
mod server_tool;
mod tools;
mod server;

pub use self::difference::{Change, Difference};
pub use self::error::{McpError, McpErrorKind};
pub use self::fingerprint::Fingerprint;
pub use self::log::McpLog;
pub use self::problem::McpProblem;
pub use self::server::McpServer;
pub use self::tool::McpTool;
pub use self::tools::McpTools;
