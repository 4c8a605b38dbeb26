#![allow(dead_code)]

use tool_core::tool;

// A word that contradicts two is told of once.
#[tool(needs_approval, undo = "cancel", pure, at_most_once, attempts = 2)]
fn order() {}

fn main() {}
