#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool(pure, needs_approval)]
fn order() {}

fn main() {}
