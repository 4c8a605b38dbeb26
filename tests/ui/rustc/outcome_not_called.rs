use tool_core::Agent;
use tool_core::agent::Outcome;

async fn ask(agent: &Agent) -> String {
    match agent.ask("What is 2 + 40?").await {
        Outcome::Answer(answer) => answer.text().to_owned(),
        _ => String::new(),
    }
}

fn main() {}
