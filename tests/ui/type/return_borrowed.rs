#![allow(dead_code)]

use tool_core::tool;

#[tool]
fn first(words: Vec<String>, default: &str) -> Result<&str, String> {
    words.into_iter().next().map_or(Ok(default), Err)
}

fn main() {}
