#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool(undo = cancel)]
fn order() {}

fn main() {}
