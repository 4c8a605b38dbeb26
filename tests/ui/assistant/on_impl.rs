#![allow(dead_code)]

use tool_core::assistant;

struct Planner;

#[assistant("You plan trips.")]
impl Planner {}

fn main() {}
