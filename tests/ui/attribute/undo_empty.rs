#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool(undo = "")]
fn order() {}

fn main() {}
