#![allow(dead_code, unused_variables)]

use tool_core::tool;

type Count = u32;

#[tool]
fn order(#[param(length = 1..=3)] amount: Count) {
    let _ = amount;
}

fn main() {}
