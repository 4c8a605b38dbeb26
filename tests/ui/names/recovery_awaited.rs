use tool_core::Agent;

async fn recover(agent: &Agent) {
    agent.recover().await.unwrap();
}

fn main() {}
