//! Every option of the macros, in a crate with strict lints and edition 2021. The file is shared with the tests of
//! edition 2024, which call its tools.
#![deny(warnings, clippy::all, clippy::pedantic)]
#![deny(missing_docs, missing_debug_implementations, missing_copy_implementations, unreachable_pub, unused)]
#![deny(unused_qualifications, unused_results, unused_lifetimes, let_underscore_drop, nonstandard_style)]

#[path = "../tools/every_option/program.rs"]
mod program;

/// Calls every tool of the program.
pub async fn call_all() {
    program::call_all().await;
}
