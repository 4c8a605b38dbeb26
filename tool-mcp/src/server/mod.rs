//! One's own tools for MCP hosts.
