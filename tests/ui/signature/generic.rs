#![allow(dead_code)]

use tool_core::tool;

#[tool]
fn show<T: ToString>(value: T) -> String {
    value.to_string()
}

fn main() {
    let _ = tool_core::tools![show];
}
