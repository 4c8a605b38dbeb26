//! Large outputs and answers: stored once, and limited as documented.

use std::sync::Mutex;

use serde_json::json;
use tool_core::run::{Decision, StopReason};
use tool_core::testing::ScriptedModel;
use tool_core::tool::CallToUndo;
use tool_core::{Agent, tool, tools};
use tool_restate::Worker;

use crate::support::{
    Mortal, agent, answer, failure, free_address, invocation_of, register_at, serve, sql, unique,
    waiting_calls, within,
};

#[tool("Returns a long text")]
fn long(bytes: usize) -> String {
    "x".repeat(bytes)
}

#[tool("Needs a person", needs_approval)]
fn ask_person() {}

/// The run's invocation receives an output, and returns it in its answer. Neither has it twice.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn an_answer_has_each_output_once() {
    for is_local in [false, true] {
        let name = unique("clerk");
        let model = ScriptedModel::new()
            .calls_all([("long", r#"{"bytes": 1000000}"#), ("long", r#"{"bytes": 1000001}"#)])
            .calls("long", r#"{"byte": 1}"#)
            .says("Done.");
        let clerk = Agent::builder(model).name(&*name).tools(tools![long]).build().unwrap();
        let worker = Worker::new().agent(clerk);
        let _worker = serve(if is_local { worker.local_calls() } else { worker }).await;
        let run = agent(&name).ask("Go").send().await.unwrap();
        let answer = answer(&run).await;
        let lengths: Vec<_> = answer.new_messages().iter().map(|one| one.text().len()).collect();
        assert_eq!((lengths[2], lengths[3]), (1_000_000, 1_000_001));
        let records: Vec<_> = answer.tool_executions().iter().map(|one| one.output().is_some()).collect();
        assert_eq!(records, [true, true, false]);
        assert!(lengths[5] > 0, "the error of the third call");
        let query = format!(
            "SELECT CAST(SUM(raw_length) AS BIGINT) AS bytes FROM sys_journal WHERE id = '{}'",
            invocation_of(&name, run.key()).await
        );
        let bytes = sql(&query).await["bytes"].as_u64().unwrap();
        assert!((4_000_000..4_100_000).contains(&bytes), "{bytes} bytes, local: {is_local}");
    }
}

/// With the limit of every worker: the answer has more than the server takes at once, and so has the journal that a
/// second worker reads.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_run_can_have_more_than_the_server_takes_at_once() {
    let name = unique("clerk");
    let long = |bytes| ("long", format!(r#"{{"bytes": {bytes}}}"#));
    let model = ScriptedModel::new()
        .calls_all([long(12_000_000), long(12_000_001), long(12_000_002)])
        .calls("ask_person", "{}")
        .says("Done.");
    let clerk = Agent::builder(model).name(&*name).tools(tools![self::long, ask_person]).build().unwrap();
    let address = free_address();
    let first = Mortal::start(Worker::new().agent(clerk.clone()), address).await;
    register_at(address).await;
    let run = agent(&name).ask("Go").conversation("c").events().send().await.unwrap();
    let calls = within("the call", waiting_calls(&run)).await;
    drop(first);
    let _second = Mortal::start(Worker::new().agent(clerk), address).await;
    run.decide(&calls[0].id, Decision::approve()).await.unwrap();
    let answer = within("the answer", answer(&run)).await;
    let lengths: Vec<_> = answer.new_messages().iter().map(|one| one.text().len()).collect();
    assert_eq!(lengths[2..5], [12_000_000, 12_000_001, 12_000_002]);
    assert_eq!(answer.text(), "Done.");
}

static RETURNED: Mutex<Vec<(usize, Option<usize>)>> = Mutex::new(Vec::new());

#[tool("Orders something", undo = "give_back")]
fn order(list: String, bytes: usize) -> String {
    list[..0].to_owned() + &"x".repeat(bytes)
}

#[tool("Gives something back")]
fn give_back(list: String, bytes: usize, #[inject] undone: &CallToUndo) {
    let output = undone.output.as_ref().map(|output| output.to_string().len());
    RETURNED.lock().unwrap().push((list.len() + bytes, output));
}

/// A call is undone with its arguments, its output and the context, which are not larger than a value each.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_call_with_a_large_output_is_undone() {
    let name = unique("clerk");
    let list = "y".repeat(40_000);
    let model = ScriptedModel::new()
        .calls("order", json!({ "list": list, "bytes": 50_000 }).to_string())
        .calls("order", json!({ "list": "z", "bytes": 50_000 }).to_string())
        .calls("ask_person", "{}");
    let clerk = Agent::builder(model).name(&*name).tools(tools![order, ask_person]);
    let clerk = clerk.undo_tools(tools![give_back]).build().unwrap();
    let worker = Worker::new().agent(clerk).max_value_bytes(100_000);
    let _worker = serve(worker).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    waiting_calls(&run).await;
    run.cancel().await.unwrap();
    let failure = within("the failure", failure(&run)).await;
    assert!(matches!(failure.reason, Some(StopReason::Cancelled)), "{failure:?}");
    assert!(failure.undo_executions.iter().all(|one| one.outcome().is_ok()), "{failure:?}");
    // The output of the first does not fit beside its arguments, which the call and the one that it undoes have.
    assert_eq!(*RETURNED.lock().unwrap(), [(50_001, Some(50_000)), (90_000, None)]);
}

/// Its arguments fit into the reply of the model, but not beside the context.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_call_that_does_not_fit_beside_the_context_fails() {
    let name = unique("clerk");
    let model = ScriptedModel::new()
        .calls("order", json!({ "list": "y".repeat(60_000), "bytes": 1 }).to_string())
        .says("Done.");
    let clerk = Agent::builder(model).name(&*name).tools(tools![order]).undo_tools(tools![give_back]);
    let worker = Worker::new().agent(clerk.build().unwrap()).max_value_bytes(100_000);
    let _worker = serve(worker.context_json::<String>()).await;
    let question = agent(&name).ask("Go").context_json(&"c".repeat(60_000));
    let answer = within("the answer", answer(&question.send().await.unwrap())).await;
    let text = answer.tool_executions()[0].error().unwrap().to_string();
    assert_eq!(
        text,
        "the call was not executed: the call with its context has 120339 bytes, more than the 100000 that the engine takes"
    );
}
