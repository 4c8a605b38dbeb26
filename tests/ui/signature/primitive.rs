#![allow(dead_code)]

use tool_core::tool;

#[tool]
fn bool() -> u8 {
    1
}

fn main() {}
