#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool]
async fn order(#[param(timeout = "5s")] amount: u32) {
    let _ = amount;
}

fn main() {}
