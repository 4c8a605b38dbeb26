#![allow(dead_code, unused_variables)]

use tool_core::tool;

type Count = u32;

#[tool]
fn order(#[param(default = "many")] amount: Count) {
    let _ = amount;
}

fn main() {}
