#![allow(dead_code)]

use tool_core::tool;

struct Trouble;

#[tool]
fn weather() -> Result<String, Trouble> {
    Err(Trouble)
}

fn main() {}
