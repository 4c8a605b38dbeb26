#![allow(dead_code, unused_variables)]

use tool_core::toolbox;

struct Shop;

#[toolbox(for_staff)]
impl Shop {
    #[tool("Orders a book")]
    fn order(&self) {}
}

fn main() {}
