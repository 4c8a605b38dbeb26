#![allow(dead_code)]

use tool_core::toolset::provide;
use tool_core::{Agent, ChatModel, ToolSet};

async fn load() -> ToolSet {
    ToolSet::default()
}

fn agent(model: impl ChatModel + 'static) {
    let _ = Agent::builder(model).tool_provider(provide(|_| load())).build();
}

fn main() {}
