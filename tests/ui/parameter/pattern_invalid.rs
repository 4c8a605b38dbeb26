#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool]
fn order(#[param(pattern = "[a-z")] amount: String) {
    let _ = amount;
}

fn main() {}
