#![allow(dead_code, unused_variables)]

use tool_core::tool;

type Flag = bool;

#[tool]
fn order(#[param(range = 0..=1)] amount: Flag) {
    let _ = amount;
}

fn main() {}
