#![allow(dead_code)]

use tool_core::tool;

#[tool]
fn square_root(#[param(crate = "tool_core")] x: f64) -> f64 {
    x.sqrt()
}

fn main() {
    let _ = tool_core::tools![square_root];
}
