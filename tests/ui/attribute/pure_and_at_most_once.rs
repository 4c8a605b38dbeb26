#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool(at_most_once, exclusive, pure)]
fn order() {}

fn main() {}
