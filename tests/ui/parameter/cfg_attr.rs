#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool]
fn square_root(#[cfg_attr(all(), param("a number"))] x: f64) -> f64 {
    x.sqrt()
}

fn main() {}
