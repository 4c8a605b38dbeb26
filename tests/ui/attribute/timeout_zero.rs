#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool(timeout = "0s")]
async fn order() {}

fn main() {}
