#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool(attempts)]
fn order() {}

fn main() {}
