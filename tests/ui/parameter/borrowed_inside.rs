#![allow(dead_code)]

use tool_core::tool;

#[tool]
fn count(text: Option<&str>) -> usize {
    text.map_or(0, str::len)
}

fn main() {
    let _ = tool_core::tools![count];
}
