#![allow(dead_code, unused_variables)]

use tool_core::{Agent, ChatModel, ToolSet};

fn agent(model: impl ChatModel + 'static, some: ToolSet, more: ToolSet) {
    let _ = Agent::builder(model).tools(some.union(more)).build();
}

fn main() {}
