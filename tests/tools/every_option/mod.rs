//! Every option of the macros, in a crate with strict lints and edition 2024.
#![deny(warnings, clippy::all, clippy::pedantic)]
#![deny(missing_docs, missing_debug_implementations, missing_copy_implementations, unreachable_pub, unused)]
#![deny(unused_qualifications, unused_results, unused_lifetimes, let_underscore_drop, nonstandard_style)]

mod program;

#[tokio::test]
async fn all_options_work() {
    program::call_all().await;
}

#[tokio::test]
async fn all_options_work_in_edition_2021() {
    tests_edition_2021::call_all().await;
}
