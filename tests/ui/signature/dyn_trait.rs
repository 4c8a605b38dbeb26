#![allow(dead_code)]

use tool_core::tool;

#[tool]
fn show(value: &dyn ToString) -> String {
    value.to_string()
}

fn main() {
    let _ = tool_core::tools![show];
}
