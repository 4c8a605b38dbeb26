#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool("Returns the square root")]
fn square_root(x: f64) -> f64 {
    let root = x.sqrt()
    root
}

fn main() {
    let _ = tool_core::tools![square_root];
}
