#![allow(dead_code, unused_variables)]

use tool_core::toolbox;

struct Shop;

#[toolbox(nam = "shop")]
impl Shop {
    #[tool]
    fn order(&self) {}
}

fn main() {}
