#![allow(dead_code)]

use tool_core::tool;

#[derive(serde::Deserialize)]
struct Place {
    name: String,
}

#[tool]
async fn weather(days: u8, place: Vec<Place>) -> String {
    format!("{days} {}", place[0].name)
}

fn main() {}
