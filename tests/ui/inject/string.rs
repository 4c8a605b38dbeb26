#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool]
fn order(#[inject] tenant: String) {}

fn main() {}
