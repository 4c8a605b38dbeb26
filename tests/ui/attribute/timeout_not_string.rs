#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool(timeout = 5)]
async fn order() {}

fn main() {}
