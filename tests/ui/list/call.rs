#![allow(dead_code)]

use tool_core::tool;

#[tool]
fn square_root(x: f64) -> f64 {
    x.sqrt()
}

fn list() -> tool_core::ToolSet {
    tool_core::tools![square_root(2.0)]
}

fn main() {}
