#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool]
fn order(#[param(default = 5)] amount: Option<u32>) {
    let _ = amount;
}

fn main() {}
