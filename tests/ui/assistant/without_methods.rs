#![allow(dead_code)]

use tool_core::assistant;

#[assistant("You plan trips.")]
trait Planner {}

fn main() {}
