#![allow(dead_code)]

use tool_core::tool;

struct Place {
    name: String,
}

#[tool]
fn weather(place: Place) -> String {
    place.name
}

fn main() {}
