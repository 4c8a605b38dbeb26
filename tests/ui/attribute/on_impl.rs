#![allow(dead_code)]

use tool_core::tool;

struct Calculator;

#[tool]
impl Calculator {}

fn main() {}
