#![allow(dead_code)]

use tool_core::toolbox;

struct Calculator;

#[toolbox]
impl Calculator {
    #[tool]
    fn square_root(&self, x: f64) -> f64 {
        x.sqrt()
    }
}

fn list() -> tool_core::ToolSet {
    tool_core::tools![Calculator::square_root]
}

fn main() {}
