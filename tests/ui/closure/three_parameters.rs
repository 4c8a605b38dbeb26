//! A tool has one struct of arguments, not several parameters.

use tool_core::FunctionTool;

fn main() {
    FunctionTool::new("sum", "Sums numbers", |a: f64, b: f64, c: f64| a + b + c);
}
