#![allow(dead_code, unused_variables)]

use tool_core::toolbox;

struct Calculator {
    digits: u8,
}

#[toolbox]
impl Calculator {
    #[tool]
    fn square_root(&self, x: f64) -> f64 {
        x.sqrt()
    }
}

fn list() -> tool_core::ToolSet {
    tool_core::tools![Calculator { digits: 2 }]
}

fn main() {}
