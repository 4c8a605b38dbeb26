#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool(timeout = "5s")]
fn order() {}

fn main() {}
