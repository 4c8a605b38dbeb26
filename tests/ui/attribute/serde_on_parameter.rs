#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool("Returns the square root")]
fn square_root(#[serde(default)] x: f64) -> f64 {
    x.sqrt()
}

fn main() {}
