#![allow(dead_code)]

use tool_core::tool;

#[tool]
struct Calculator;

fn main() {}
