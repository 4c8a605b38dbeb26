#![allow(dead_code)]

use tool_core::tool;

#[tool(description)]
fn root(x: f64) -> f64 {
    x.sqrt()
}

fn main() {
    let _ = tool_core::tools![root];
}
