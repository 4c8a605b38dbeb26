#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool]
fn order(#[param(range = 1..=300)] amount: u8) {
    let _ = amount;
}

fn main() {}
