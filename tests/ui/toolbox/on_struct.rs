#![allow(dead_code, unused_variables)]

use tool_core::toolbox;

#[toolbox]
struct Shop;

fn main() {}
