#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool("Stops the program")]
fn stop(code: i32) -> ! {
    std::process::exit(code)
}

fn main() {}
