#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool]
fn order(#[inject] shop: &dyn std::fmt::Debug) {}

fn main() {}
