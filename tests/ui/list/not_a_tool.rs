#![allow(dead_code)]

use tool_core::tool;

struct Calculator;

#[tool]
fn square_root(x: f64) -> f64 {
    x.sqrt()
}

fn list() -> tool_core::ToolSet {
    tool_core::tools![square_root, Calculator]
}

fn main() {}
