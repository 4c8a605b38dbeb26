//! The closure takes several parameters instead of one struct.

use tool_core::FunctionTool;

fn main() {
    FunctionTool::new("sum", |a: f64, b: f64, c: f64| a + b + c);
}
