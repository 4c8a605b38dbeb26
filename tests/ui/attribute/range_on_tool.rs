#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool(range = 1..=5)]
fn order(amount: u32) {
    let _ = amount;
}

fn main() {}
