#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool("Sums numbers")]
fn sum(numbers: [f64]) -> f64 {
    numbers.iter().sum()
}

fn main() {
    let _ = tool_core::tools![sum];
}
