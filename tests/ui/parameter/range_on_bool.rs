#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool]
fn order(#[param(range = 0..=1)] amount: bool) {
    let _ = amount;
}

fn main() {}
