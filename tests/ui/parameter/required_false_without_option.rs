#![allow(dead_code)]

use tool_core::tool;

#[tool]
fn square_root(#[param("a number", required = false)] x: f64) -> f64 {
    x.sqrt()
}

fn main() {
    let _ = tool_core::tools![square_root];
}
