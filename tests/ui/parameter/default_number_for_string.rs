#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool]
fn order(#[param(default = 5)] amount: String) {
    let _ = amount;
}

fn main() {}
