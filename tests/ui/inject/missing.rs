#![allow(dead_code, unused_variables)]

use tool_core::tool;

struct Shop;

#[tool]
fn order(shop: &Shop) {}

fn main() {}
