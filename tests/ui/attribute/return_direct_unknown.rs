#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool(return_direct = "sometimes")]
fn order() {}

fn main() {}
