#![allow(dead_code)]

use tool_core::tool;

#[tool]
fn clear(text: &mut String) {
    text.clear();
}

fn main() {
    let _ = tool_core::tools![clear];
}
