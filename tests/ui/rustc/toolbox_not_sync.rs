#![allow(dead_code, unused_variables)]

use tool_core::toolbox;

struct Shop(std::cell::Cell<u32>);

#[toolbox]
impl Shop {
    #[tool]
    fn order(&self) {}
}

fn main() {}
