#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool("Returns the weather")]
fn forecast(city: String) -> Result<Weather, String> {
    todo!()
}

fn main() {}
