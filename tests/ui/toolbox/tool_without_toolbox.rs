#![allow(dead_code, unused_variables)]

use tool_core::tool;

struct Shop;

impl Shop {
    #[tool]
    fn order(&self) {}
}

fn main() {}
