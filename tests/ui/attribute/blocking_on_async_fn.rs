#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool(blocking)]
async fn order() {}

fn main() {}
