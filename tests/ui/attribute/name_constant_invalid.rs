#![allow(dead_code)]

use tool_core::tool;

const NAME: &str = "square root";

#[tool(name = NAME)]
fn root(x: f64) -> f64 {
    x.sqrt()
}

fn main() {
    let _ = tool_core::tools![root];
}
