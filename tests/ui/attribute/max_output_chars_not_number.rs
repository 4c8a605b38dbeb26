#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool(max_output_chars = "4k")]
fn order() {}

fn main() {}
