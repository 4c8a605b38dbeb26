#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool(at_most_once, attempts = 2)]
fn order() {}

fn main() {}
