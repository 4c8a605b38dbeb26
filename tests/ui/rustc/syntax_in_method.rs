#![allow(dead_code, unused_variables)]

use tool_core::{ToolSet, toolbox};

struct Calculator;

#[toolbox]
impl Calculator {
    #[tool]
    fn square_root(&self, #[param("a number")] x: f64) -> f64 {
        let root = x.sqrt() root
    }
}

fn main() {
    let _ = ToolSet::from(Calculator);
}
