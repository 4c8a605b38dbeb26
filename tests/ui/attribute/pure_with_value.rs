#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool(pure = "yes")]
fn order() {}

fn main() {}
