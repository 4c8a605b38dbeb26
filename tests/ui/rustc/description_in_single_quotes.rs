#![allow(dead_code)]

use tool_core::tool;

#[tool('Roots')]
fn square_root(x: f64) -> f64 {
    x.sqrt()
}

fn main() {}
