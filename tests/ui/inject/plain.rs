#![allow(dead_code, unused_variables)]

use std::sync::Arc;

use tool_core::tool;

#[tool]
fn order(#[inject] limits: Option<Arc<Vec<u32>>>) {}

fn main() {}
