#![allow(dead_code, unused_variables)]

use tool_core::toolbox;

struct Shop;

#[toolbox(timeout = "5s")]
impl Shop {
    #[tool]
    fn order(&self) {}
}

fn main() {}
