//! The type of the arguments has no schema.

use tool_core::FunctionTool;

#[derive(serde::Deserialize)]
struct Pair {
    a: f64,
    b: f64,
}

fn main() {
    FunctionTool::new("sum", |pair: Pair| pair.a + pair.b);
}
