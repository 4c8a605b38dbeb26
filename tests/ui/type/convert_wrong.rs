#![allow(dead_code, unused_variables)]

use tool_core::tool;

fn as_table(text: String) -> String {
    text
}

#[tool(convert = as_table)]
fn order() -> u32 {
    1
}

fn main() {}
