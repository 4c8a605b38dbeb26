//! A crate that forbids everything that it can.
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, missing_debug_implementations, missing_copy_implementations)]
#![deny(unreachable_pub, unused, nonstandard_style, rust_2018_idioms, let_underscore_drop)]
#![deny(unused_qualifications, unused_results, unused_lifetimes, single_use_lifetimes, unit_bindings)]

use tool_core::{tool, tools};

/// Sums two numbers.
#[tool]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

/// Does nothing.
#[tool]
fn nothing() {}

/// Does nothing for a while.
#[tool]
async fn nothing_later(#[param(required = false)] for_long: Option<u32>) -> Result<(), String> {
    match for_long {
        None => Ok(()),
        Some(_) => Err(String::new()),
    }
}

mod other {
    /// Counts.
    #[tool_core::tool]
    #[must_use]
    pub(crate) fn count(text: &str) -> usize {
        text.len()
    }
}

pub(crate) fn main() {
    assert_eq!(tools![sum, nothing, nothing_later, other::count].len(), 4);
}
