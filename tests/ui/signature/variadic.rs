#![allow(dead_code)]

use tool_core::tool;

#[tool]
unsafe extern "C" fn sum(first: u8, _: ...) -> u8 {
    first
}

fn main() {
    let _ = tool_core::tools![sum];
}
