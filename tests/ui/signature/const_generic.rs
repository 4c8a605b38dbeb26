#![allow(dead_code)]

use tool_core::tool;

#[tool]
fn zeros<const N: usize>() -> Vec<u8> {
    vec![0; N]
}

fn main() {
    let _ = tool_core::tools![zeros];
}
