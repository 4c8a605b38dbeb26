#![allow(dead_code, unused_variables)]

use tool_core::toolbox;

struct Kitchen;

#[toolbox]
impl Kitchen {
    #[tool(attempts = 3, at_most_once)]
    fn order(&self, dish: String) {}
}

fn main() {}
