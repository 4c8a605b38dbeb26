#![allow(dead_code, unused_variables)]

use tool_core::toolbox;

struct Shop;

#[toolbox]
impl Shop {
    #[tool("Orders something")]
    fn order(&self, item: Item) {}
}

fn main() {}
