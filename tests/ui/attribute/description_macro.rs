#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool(concat!("Returns the", " square root"))]
fn square_root(x: f64) -> f64 {
    x.sqrt()
}

fn main() {}
