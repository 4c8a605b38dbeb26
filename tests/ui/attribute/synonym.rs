#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool("Returns the square root", retries = 3)]
fn square_root(x: f64) -> f64 {
    x.sqrt()
}

fn main() {}
