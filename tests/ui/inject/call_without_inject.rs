#![allow(dead_code, unused_variables)]

use tool_core::{ToolCall, tool};

#[tool]
fn order(call: ToolCall) {}

fn main() {}
