#![allow(dead_code)]

use tool_core::tool;

#[tool(nam = "root", colour = "red")]
fn square_root<T>((x, y): (f64, f64), #[param(required = 1)] _: &mut T) -> f64 {
    (x + y).sqrt()
}

fn main() {}
