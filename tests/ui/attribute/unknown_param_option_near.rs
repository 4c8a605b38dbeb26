#![allow(dead_code)]

use tool_core::tool;

#[tool]
fn square_root(#[param(requird = false)] x: Option<f64>) -> f64 {
    x.unwrap_or(0.0).sqrt()
}

fn main() {
    let _ = tool_core::tools![square_root];
}
