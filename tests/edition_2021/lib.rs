//! Every option of the macros, in a crate with strict lints and edition 2021. The file is shared with the test for
//! edition 2024.
#![cfg(test)]
#![deny(warnings, clippy::all, clippy::pedantic)]
#![deny(missing_docs, missing_debug_implementations, missing_copy_implementations, unreachable_pub, unused)]
#![deny(unused_qualifications, unused_results, unused_lifetimes, let_underscore_drop, nonstandard_style)]

#[path = "../every_word/every_word.rs"]
mod every_word;
