#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool]
fn order(#[param(lenght = 1..=5)] amount: String) {
    let _ = amount;
}

fn main() {}
