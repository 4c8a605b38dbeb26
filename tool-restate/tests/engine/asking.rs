//! Questions and answers.

use tool_core::testing::ScriptedModel;
use tool_core::{Agent, tool, tools};
use tool_restate::Worker;

use crate::support::{agent, answer, serve, unique};

#[tool("Sums two numbers")]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_question_with_a_call_is_answered() {
    let name = unique("clerk");
    let model = ScriptedModel::new().calls("sum", r#"{"a": 2, "b": 40}"#).says("It is 42.");
    let clerk = Agent::builder(model).name(&*name).tools(tools![sum]).build().unwrap();
    let _worker = serve(Worker::new().agent(clerk)).await;
    let run = agent(&name).ask("What is 2 + 40?").send().await.unwrap();
    assert!(run.is_new());
    let answer = answer(&run).await;
    assert_eq!(answer.text(), "It is 42.");
    assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "42.0");
}
