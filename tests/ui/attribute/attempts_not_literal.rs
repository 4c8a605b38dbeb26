#![allow(dead_code, unused_variables)]

use tool_core::tool;

const MOST: u32 = 3;

#[tool(attempts = MOST)]
fn order() {}

fn main() {}
