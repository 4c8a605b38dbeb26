#![allow(dead_code, unused_variables)]

use tool_core::toolbox;

struct Shop;

#[toolbox]
impl Shop {
    /// Returns the price of an item.
    #[tool]
    fn price(&self, item: str) -> usize {
        item.len()
    }
}

fn main() {}
