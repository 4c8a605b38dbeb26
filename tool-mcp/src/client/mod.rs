//! Tools from MCP servers.
