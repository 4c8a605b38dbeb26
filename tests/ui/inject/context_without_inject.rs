#![allow(dead_code, unused_variables)]

use tool_core::{ToolContext, tool};

#[tool]
fn order(context: &ToolContext) {}

fn main() {}
