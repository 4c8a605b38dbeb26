#![allow(dead_code)]

use tool_core::tool;

#[tool]
fn count(text: &'static str) -> usize {
    text.len()
}

fn main() {
    let _ = tool_core::tools![count];
}
