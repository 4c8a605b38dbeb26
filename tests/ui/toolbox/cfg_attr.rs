#![allow(dead_code, unused_variables)]

use tool_core::{ToolSet, toolbox};

struct Calculator;

#[toolbox]
impl Calculator {
    #[cfg_attr(all(), tool("Returns the square root"))]
    fn square_root(&self, #[param("a number")] x: f64) -> f64 {
        x.sqrt()
    }

    #[tool]
    fn cube_root(&self, x: f64) -> f64 {
        x.cbrt()
    }
}

fn main() {
    let _ = ToolSet::from(Calculator);
}
