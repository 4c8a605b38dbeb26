#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool]
fn order(#[param(default = "B", pattern = "^[a-z]$")] dish: String) {}

fn main() {}
