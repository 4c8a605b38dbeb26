#![allow(dead_code, unused_variables)]

use tool_core::toolbox;

#[toolbox]
trait Shop {
    #[tool]
    fn price(&self, #[param("the name")] item: String) -> u32;
}

fn main() {}
