#![allow(dead_code, unused_variables)]

use tool_core::{CancellationToken, tool};

#[tool]
async fn order(cancellation: &CancellationToken) {}

fn main() {}
