//! What crosses the crates is tested here; there is nothing to use.

/// The programs of the README compile.
#[doc = include_str!("../README.md")]
mod readme {}
