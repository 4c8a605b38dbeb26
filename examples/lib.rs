//! Programs to start from, one idea each: `cargo run --example quickstart`.
