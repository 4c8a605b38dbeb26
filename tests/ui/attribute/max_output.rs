#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool(max_output = 4000)]
fn order() {}

fn main() {}
