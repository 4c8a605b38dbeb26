#![allow(dead_code)]

use tool_core::tool;

#[tool]
fn show(values: Vec<impl ToString>) -> String {
    values.iter().map(ToString::to_string).collect()
}

fn main() {
    let _ = tool_core::tools![show];
}
