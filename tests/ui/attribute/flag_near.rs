#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool(needs_aproval)]
fn order() {}

fn main() {}
