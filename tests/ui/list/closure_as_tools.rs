use tool_core::{Agent, ChatModel};

fn agent(model: impl ChatModel + 'static) {
    let _ = Agent::builder(model).tools(|| "12:30").build();
}

fn main() {}
