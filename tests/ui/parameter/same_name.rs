#![allow(dead_code)]

use tool_core::tool;

#[tool]
fn sum(a: f64, #[param(name = "a")] b: f64) -> f64 {
    a + b
}

fn main() {
    let _ = tool_core::tools![sum];
}
