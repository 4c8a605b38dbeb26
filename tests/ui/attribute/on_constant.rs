#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool("Returns the square root")]
const ROOT: f64 = 2.0;

fn main() {}
