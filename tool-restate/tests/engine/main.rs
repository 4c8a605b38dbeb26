//! Durable runs on a real Restate server, which the script `run` starts.

mod support;

mod asking;
