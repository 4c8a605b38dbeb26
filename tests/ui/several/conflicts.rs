#![allow(dead_code)]

use tool_core::tool;

// An option that conflicts with two others gives one message.
#[tool(needs_approval, undo = "cancel", pure, at_most_once, attempts = 2)]
fn order() {}

fn main() {}
