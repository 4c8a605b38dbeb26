#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool(descripton = "Orders a meal")]
fn order() {}

fn main() {}
