#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool(attempts = "3")]
fn order() {}

fn main() {}
