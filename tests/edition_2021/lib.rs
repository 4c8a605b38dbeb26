//! Every word of the macros, in the strictest of crates, in edition 2021: the file is the one that the tests of
//! edition 2024 have, and they call what is here.
#![deny(warnings, clippy::all, clippy::pedantic)]
#![deny(missing_docs, missing_debug_implementations, missing_copy_implementations, unreachable_pub, unused)]
#![deny(unused_qualifications, unused_results, unused_lifetimes, let_underscore_drop, nonstandard_style)]

#[path = "../tools/every_word/program.rs"]
mod program;

/// Calls every tool of the program.
pub async fn call_all() {
    program::call_all().await;
}
