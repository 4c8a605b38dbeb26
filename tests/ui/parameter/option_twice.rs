#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool]
fn order(#[param(range = 1..=5, range = 2..=6)] amount: u32) {
    let _ = amount;
}

fn main() {}
