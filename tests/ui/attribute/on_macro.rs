#![allow(unused_macros)]

use tool_core::tool;

#[tool("Returns the square root")]
macro_rules! square_root {
    () => {};
}

fn main() {}
