#![allow(dead_code, unused_variables)]

use tool_core::toolbox;

struct Shop;

#[toolbox]
impl Shop {
    #[tool(nam = "x")]
    fn order(&self, #[param(range = 0..=1)] a: bool) {}

    #[tool]
    fn buy(&mut self) {}
}

fn main() {}
