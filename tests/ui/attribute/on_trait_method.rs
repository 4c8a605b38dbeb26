#![allow(dead_code, unused_variables)]

use tool_core::tool;

trait Calculator {
    #[tool("Returns the square root")]
    fn square_root(&self, x: f64) -> f64;
}

fn main() {}
