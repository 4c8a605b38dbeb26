#![allow(dead_code)]

use tool_core::tool;

#[tool]
fn größe() -> u8 {
    1
}

fn main() {
    let _ = tool_core::tools![größe];
}
