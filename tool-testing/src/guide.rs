//! Checks of calls, kept runs and rehearsals, as a guide.
//!
#![cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#![doc = include_str!("../docs/guide.md")]
