#![allow(dead_code, unused_variables)]

use tool_core::{ToolContext, tool};

#[tool("Orders a book")]
#[inject]
fn order(context: &ToolContext) {}

fn main() {}
