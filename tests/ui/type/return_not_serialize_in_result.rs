#![allow(dead_code)]

use tool_core::tool;

struct Weather;

#[tool]
async fn weather() -> Result<Weather, String> {
    Ok(Weather)
}

fn main() {}
