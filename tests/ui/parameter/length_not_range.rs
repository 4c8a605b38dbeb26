#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool]
fn order(#[param(length = 3)] amount: String) {
    let _ = amount;
}

fn main() {}
