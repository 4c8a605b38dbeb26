#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool]
fn order(#[param(required = true, default = 1)] amount: u8) {
    let _ = amount;
}

fn main() {}
