#![allow(dead_code)]

use tool_core::tool;

fn sum(a: f64, b: f64) -> f64 {
    a + b
}

#[tool]
fn square_root(x: f64) -> f64 {
    x.sqrt()
}

fn list() -> tool_core::ToolSet {
    tool_core::tools![square_root, sum]
}

fn main() {}
