//! Example programs, one idea each: `cargo run --example quickstart`.
