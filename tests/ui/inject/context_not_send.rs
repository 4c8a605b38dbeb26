#![allow(dead_code, unused_variables)]

use std::rc::Rc;

use tool_core::{Agent, ChatModel};

struct Shop;

fn agent(model: impl ChatModel + 'static) {
    let _ = Agent::builder(model).context(Rc::new(Shop)).build();
}

fn main() {}
