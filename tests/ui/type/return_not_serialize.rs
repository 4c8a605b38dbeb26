#![allow(dead_code)]

use tool_core::tool;

struct Weather {
    degrees: f64,
}

#[tool]
fn weather(city: String) -> Weather {
    let _ = city;
    Weather { degrees: 22.0 }
}

fn degrees(weather: &Weather) -> f64 {
    weather.degrees
}

fn main() {}
