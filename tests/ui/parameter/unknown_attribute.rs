#![allow(dead_code, unused_variables)]

use tool_core::{ToolContext, tool};

#[tool("Orders a book")]
fn order(#[state] context: &ToolContext) {}

fn main() {}
