//! Tools of MCP servers for an agent, and tools of your own for MCP hosts.
//!
#![cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#![doc = include_str!("../docs/guide.md")]

#[cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#[doc = include_str!("../docs/login.md")]
pub mod servers_that_need_a_login {}
