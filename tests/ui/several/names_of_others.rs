#![deny(deprecated)]

use tool_core::agent::{AgentBuilder, Ask, EventStream};
use tool_core::{Agent, Answer, Message};

fn with_settings(builder: AgentBuilder) -> AgentBuilder {
    builder.system("You help.").system_prompt("You help.").max_tokens(500).max_steps(5)
}

fn asks(agent: &Agent, history: &[Message]) -> [Ask; 2] {
    [agent.generate("Hello").max_turns(3), agent.chat("Hello", history).multi_turn(3)]
}

fn streams(agent: &Agent) -> [EventStream; 2] {
    [agent.stream("Hello"), agent.stream_prompt("Hello")]
}

fn texts(answer: &Answer) -> [&str; 2] {
    [answer.final_output(), answer.content()]
}

fn main() {}
