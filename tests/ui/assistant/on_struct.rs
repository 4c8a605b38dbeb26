#![allow(dead_code)]

use tool_core::assistant;

#[assistant("You plan trips.", agent = PlannerAgent)]
struct Planner;

fn main() {}
