#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool(strict = "yes")]
fn order() {}

fn main() {}
