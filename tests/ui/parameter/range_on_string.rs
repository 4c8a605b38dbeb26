#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool]
fn order(#[param(range = 1..=64)] amount: String) {
    let _ = amount;
}

fn main() {}
