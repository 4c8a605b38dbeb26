#![allow(dead_code, unused_variables)]

use tool_core::FunctionTool;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Number {
    x: f64,
}

fn main() {
    let _ = FunctionTool::new("square_root", |number: &Number| number.x.sqrt());
}
