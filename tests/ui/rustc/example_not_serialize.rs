#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Number {
    x: f64,
}

#[tool("Returns the square root")]
fn square_root(#[param(example = Number { x: 2.0 })] number: Number) -> f64 {
    number.x.sqrt()
}

fn main() {}
