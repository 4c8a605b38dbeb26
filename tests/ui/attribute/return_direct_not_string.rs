#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool(return_direct = 3)]
fn order() {}

fn main() {}
