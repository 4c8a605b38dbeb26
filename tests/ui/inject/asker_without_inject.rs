#![allow(dead_code, unused_variables)]

use tool_core::tool;
use tool_core::tool::Asker;

#[tool]
async fn order(user: &Asker) {}

fn main() {}
