#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool(return_direct = allways)]
fn order() {}

fn main() {}
