#![allow(dead_code, unused_variables)]

use tool_core::toolbox;

#[toolbox]
fn order() {}

fn main() {}
