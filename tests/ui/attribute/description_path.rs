#![allow(dead_code, unused_variables)]

use tool_core::tool;

mod prompts {
    pub const SQUARE_ROOT: &str = "Returns the square root";
}

#[tool(prompts::SQUARE_ROOT)]
fn square_root(x: f64) -> f64 {
    x.sqrt()
}

fn main() {}
