//! The program with every option of the macros, in edition 2021 with strict lints. The source file is shared with the
//! tests in edition 2024, which call this crate.
#![deny(warnings, clippy::all, clippy::pedantic)]
#![deny(missing_docs, missing_debug_implementations, missing_copy_implementations, unreachable_pub, unused)]
#![deny(unused_qualifications, unused_results, unused_lifetimes, let_underscore_drop, nonstandard_style)]

#[path = "../tools/every_word/program.rs"]
mod program;

/// Calls every tool of the program.
pub async fn call_all() {
    program::call_all().await;
}
