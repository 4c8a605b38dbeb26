#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool(name = "order_meal", undo = "order_meal")]
fn order() {}

fn main() {}
