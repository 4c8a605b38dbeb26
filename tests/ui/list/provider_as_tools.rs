#![allow(dead_code, unused_variables)]

use tool_core::toolset::{ToolProvider, ToolProviderFuture, ToolProviderRequest};
use tool_core::{Agent, ChatModel};

struct Remote;

impl ToolProvider for Remote {
    fn tools<'a>(&'a self, _: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        Box::pin(async { Ok(Default::default()) })
    }
}

fn agent(model: impl ChatModel + 'static) {
    let _ = Agent::builder(model).tools(Remote).build();
}

fn main() {}
