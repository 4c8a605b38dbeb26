//! Agents that are tools of others: their runs are parts of the outermost run.

use std::sync::Mutex;

use tool_core::model::ToolDefinition;
use tool_core::testing::ScriptedModel;
use tool_core::tool::Attempt;
use tool_core::{Agent, tool, tools};
use tool_restate::Worker;

use crate::support::{Mortal, agent, answer, free_address, register_at, serve, unique};

/// The calls of `refund`, with their keys.
static REFUNDS: Mutex<Vec<(u32, String)>> = Mutex::new(Vec::new());

#[tool("Refunds an invoice")]
fn refund(invoice: u32, #[inject] attempt: &Attempt) -> String {
    REFUNDS.lock().unwrap().push((invoice, attempt.key.as_str().to_owned()));
    format!("refunded {invoice}")
}

fn desk(name: &str) -> Agent {
    let model = ScriptedModel::new().calls("refund", r#"{"invoice": 7}"#).says("Invoice 7 is refunded.");
    let billing = Agent::builder(model).tools(tools![refund]).build().unwrap();
    let model = ScriptedModel::new().calls("billing", r#"{"question": "Refund invoice 7"}"#).says("Done.");
    Agent::builder(model).name(name).tool(billing.as_tool("billing", "Bills")).build().unwrap()
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn an_agent_is_asked_inside_the_run() {
    let name = unique("desk");
    let _worker = serve(Worker::new().agent(desk(&name))).await;
    let run = agent(&name).ask("I want my money back").send().await.unwrap();
    let answer = answer(&run).await;
    assert_eq!(answer.text(), "Done.");
    assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "Invoice 7 is refunded.");
    let inner = &answer.inner_runs()[0];
    assert_eq!((inner.agent(), inner.call_id()), ("billing", "call_1_0"));
    assert_eq!(inner.run().messages()[2].text(), "refunded 7");
}
