//! Tools of MCP servers for an agent, and tools of your own for MCP hosts.
//!
#![cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#![doc = include_str!("../docs/guide.md")]
