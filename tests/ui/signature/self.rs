#![allow(dead_code)]

use tool_core::tool;

struct Calculator;

impl Calculator {
    #[tool]
    fn double(&self, x: f64) -> f64 {
        2.0 * x
    }
}

fn main() {}
