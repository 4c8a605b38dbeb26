#![allow(dead_code, unused_variables)]

use tool_core::{call, tool};

#[tool]
fn refund(order: String, cents: u32, currency: Option<String>) {}

fn pattern() -> tool_core::signatures::CallPattern {
    call!(refund { cents: |cents| cents < 5, .. })
}

fn main() {}
