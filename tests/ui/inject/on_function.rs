#![allow(dead_code, unused_variables)]

use tool_core::tool;

struct Shop;

#[tool]
#[inject]
fn order() {}

fn main() {}
