//! Tools of MCP servers, and tools as an MCP server.

mod client;
mod counterparts;
mod server;
mod threads;
