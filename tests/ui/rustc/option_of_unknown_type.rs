#![allow(dead_code, unused_variables)]

use tool_core::tool;

#[tool("Books a room")]
fn book(room: Option<Room>) {}

fn main() {}
