#![allow(dead_code)]

use tool_core::tool;

use std::borrow::Cow;

#[tool]
fn count<'a>(text: Cow<'a, str>) -> usize {
    text.len()
}

fn main() {
    let _ = tool_core::tools![count];
}
