#![allow(dead_code)]

use tool_core::tool;

#[tool]
fn ignore(_: String) {}

fn main() {
    let _ = tool_core::tools![ignore];
}
