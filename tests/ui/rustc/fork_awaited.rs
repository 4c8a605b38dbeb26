use tool_core::run::Run;
use tool_core::{Agent, Answer};

async fn fork(agent: &Agent, run: &Run) -> Answer {
    agent.fork(run, 3).await.unwrap()
}

fn main() {}
