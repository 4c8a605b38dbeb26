#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool]
fn order(#[param(range = 0.5..=9.5)] amount: u32) {
    let _ = amount;
}

fn main() {}
