//! Support code that the test binaries share.
#![cfg(not(trybuild))]

pub mod support;

/// The programs of the README compile.
#[doc = include_str!("../README.md")]
mod readme {}
