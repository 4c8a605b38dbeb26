#![allow(dead_code)]

use tool_core::tool;

#[tool]
unsafe fn read() -> u8 {
    0
}

fn main() {
    let _ = tool_core::tools![read];
}
