//! Claude, as a guide.
//!
#![cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#![doc = include_str!("../docs/guide.md")]

#[cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#[doc = include_str!("../docs/differences.md")]
pub mod differences {}
