#![allow(dead_code, unused_variables)]

use tool_core::tool;
use tool_core::tool::Asker;

#[tool("Picks a color", pure)]
async fn pick(#[inject] user: &Asker) -> String {
    String::new()
}

fn main() {}
