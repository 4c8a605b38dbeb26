#![allow(dead_code)]

use tool_core::tool;

#[tool]
const fn answer() -> u8 {
    42
}

fn main() {
    let _ = tool_core::tools![answer];
}
