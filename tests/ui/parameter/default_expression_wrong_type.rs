#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool]
fn order(#[param(default = Vec::<u8>::new())] amount: u32) {
    let _ = amount;
}

fn main() {}
