#![allow(dead_code, unused_variables)]

use tool_core::{ToolSet, toolbox};

#[toolbox]
struct Shop;

fn tools() -> ToolSet {
    ToolSet::from(Shop)
}

fn main() {}
