#![allow(dead_code)]

use tool_core::tool;

mod other {
    use super::tool;

    #[tool]
    pub fn sum(a: f64, b: f64) -> f64 {
        a + b
    }
}

#[tool]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

fn list() -> tool_core::ToolSet {
    tool_core::tools![sum, other::sum]
}

fn main() {}
