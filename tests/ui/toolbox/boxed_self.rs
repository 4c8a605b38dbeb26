#![allow(dead_code, unused_variables)]

use tool_core::toolbox;

struct Shop;

#[toolbox]
impl Shop {
    #[tool]
    fn order(self: Box<Self>) {}
}

fn main() {}
