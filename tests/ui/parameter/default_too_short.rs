#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool]
fn order(#[param(default = "", length = 1..)] dish: &str) {}

fn main() {}
