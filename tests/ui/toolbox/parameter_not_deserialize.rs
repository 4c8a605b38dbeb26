#![allow(dead_code, unused_variables)]

use tool_core::toolbox;

struct Shop;

#[toolbox]
impl Shop {
    #[tool]
    fn order(&self, item: std::time::Instant) {}
}

fn main() {}
