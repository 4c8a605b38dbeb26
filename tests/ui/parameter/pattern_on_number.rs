#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool]
fn order(#[param(pattern = "^[0-9]+$")] amount: u32) {
    let _ = amount;
}

fn main() {}
