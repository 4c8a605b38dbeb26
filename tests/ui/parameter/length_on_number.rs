#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool]
fn order(#[param(length = 1..=3)] amount: u32) {
    let _ = amount;
}

fn main() {}
