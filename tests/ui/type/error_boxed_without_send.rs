#![allow(dead_code)]

use tool_core::tool;

#[tool]
fn read(path: String) -> Result<String, Box<dyn std::error::Error>> {
    Ok(std::fs::read_to_string(path)?)
}

fn main() {}
