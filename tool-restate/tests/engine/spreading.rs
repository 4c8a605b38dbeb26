//! Runs over several workers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex};

use tokio::sync::Barrier;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ToolContext, tool, tools};
use tool_restate::Worker;

use crate::support::{agent, answer, free_address, serve, serve_at, unique};

static BOTH: LazyLock<Barrier> = LazyLock::new(|| Barrier::new(2));

#[tool("Waits for the other")]
async fn meet(name: String) -> String {
    BOTH.wait().await;
    name
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn calls_of_a_turn_run_at_the_same_time_and_their_results_are_in_order() {
    let name = unique("clerk");
    let calls = [("meet", r#"{"name": "a"}"#), ("meet", r#"{"name": "b"}"#)];
    let model = ScriptedModel::new().calls_all(calls).says("Met.");
    let clerk = Agent::builder(model).name(&*name).tools(tools![meet]).build().unwrap();
    let _worker = serve(Worker::new().agent(clerk)).await;
    let answer = answer(&agent(&name).ask("Meet").send().await.unwrap()).await;
    let outputs: Vec<_> =
        answer.tool_executions().iter().map(|one| one.output().unwrap().to_string()).collect();
    assert_eq!(outputs, ["a", "b"]);
}

static PAIRS: LazyLock<Barrier> = LazyLock::new(|| Barrier::new(2));
static RUNNING: AtomicU32 = AtomicU32::new(0);
static MOST: AtomicU32 = AtomicU32::new(0);
static ORDER: Mutex<Vec<&str>> = Mutex::new(Vec::new());

#[tool("Counts how many run at once")]
async fn count(n: u32) {
    let _ = n;
    let running = RUNNING.fetch_add(1, Ordering::SeqCst) + 1;
    MOST.fetch_max(running, Ordering::SeqCst);
    PAIRS.wait().await;
    ORDER.lock().unwrap().push("count");
    RUNNING.fetch_sub(1, Ordering::SeqCst);
}

#[tool("Runs alone", exclusive)]
async fn alone(n: u32) {
    let _ = n;
    assert_eq!(RUNNING.load(Ordering::SeqCst), 0);
    ORDER.lock().unwrap().push("alone");
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn limits_of_concurrency_hold() {
    let name = unique("clerk");
    let count = |n: u32| ("count", format!(r#"{{"n": {n}}}"#));
    let alone = |n: u32| ("alone", format!(r#"{{"n": {n}}}"#));
    let calls = [alone(0), count(1), count(2), count(3), count(4), alone(5)];
    let model = ScriptedModel::new().calls_all(calls).says("Counted.");
    let clerk = Agent::builder(model).name(&*name).tools(tools![count, alone]).max_concurrent_calls(2);
    let _worker = serve(Worker::new().agent(clerk.build().unwrap())).await;
    assert_eq!(answer(&agent(&name).ask("Count").send().await.unwrap()).await.text(), "Counted.");
    assert_eq!(MOST.load(Ordering::SeqCst), 2);
    assert_eq!(*ORDER.lock().unwrap(), ["count", "count", "count", "count", "alone", "alone"]);
}

#[tool("Renders an image")]
fn render(#[inject] place: &&'static str) -> String {
    (*place).to_owned()
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_worker_with_only_tools_executes_the_calls_routed_to_it() {
    let (name, gpu) = (unique("clerk"), unique("gpu"));
    let model = ScriptedModel::new().calls("render", "{}").says("Rendered.");
    let clerk = Agent::builder(model).name(&*name).tools(tools![render]).context("here").build().unwrap();
    let _clerk = serve(Worker::new().agent(clerk).tools_at(&*gpu, ["render"])).await;
    let tools = Worker::tools_only(&*gpu, tools![render]).tools_context(ToolContext::new().with("there"));
    let _gpu = serve(tools).await;
    let answer = answer(&agent(&name).ask("Render").send().await.unwrap()).await;
    assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "there");
}

/// The route of a tool takes precedence, and its calls run beside the local ones.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn local_calls_leave_the_routed_ones_to_their_workers() {
    let (name, gpu) = (unique("clerk"), unique("gpu"));
    let calls = [("render", "{}"), ("meet_remotely", "{}"), ("meet_locally", "{}")];
    let model = ScriptedModel::new().calls_all(calls).says("Rendered.");
    let clerk = Agent::builder(model).name(&*name).tools(tools![render, meet_remotely, meet_locally]);
    let clerk = clerk.context("here").build().unwrap();
    let clerk = Worker::new().agent(clerk).local_calls().tools_at(&*gpu, ["render", "meet_remotely"]);
    let _clerk = serve(clerk).await;
    let tools = Worker::tools_only(&*gpu, tools![render, meet_remotely]);
    let _gpu = serve(tools.tools_context(ToolContext::new().with("there"))).await;
    let answer = answer(&agent(&name).ask("Render").send().await.unwrap()).await;
    let outputs: Vec<_> =
        answer.tool_executions().iter().map(|one| one.output().unwrap().to_string()).collect();
    assert_eq!(outputs, ["there", "remote", "local"]);
}

static SIDES: LazyLock<Barrier> = LazyLock::new(|| Barrier::new(2));

#[tool("Waits for the other")]
async fn meet_remotely() -> &'static str {
    SIDES.wait().await;
    "remote"
}

#[tool("Waits for the other")]
async fn meet_locally() -> &'static str {
    SIDES.wait().await;
    "local"
}

static TRIED: AtomicU32 = AtomicU32::new(0);

#[tool("Takes effect at most once", at_most_once)]
async fn once() -> String {
    if TRIED.fetch_add(1, Ordering::SeqCst) == 0 {
        std::future::pending::<()>().await;
    }
    "executed twice".into()
}

/// The worker dies in the middle of the call, and another takes over at the same URI.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn the_outcome_of_an_interrupted_call_that_must_not_be_repeated_is_unknown() {
    for is_local in [false, true] {
        TRIED.store(0, Ordering::SeqCst);
        let name = unique("clerk");
        let model = ScriptedModel::new().calls("once", "{}").says("I will find out.");
        let clerk = Agent::builder(model).name(&*name).tools(tools![once]).build().unwrap();
        let worker = || {
            let worker = Worker::new().agent(clerk.clone());
            if is_local { worker.local_calls() } else { worker }
        };
        let address = free_address();
        // Its runtime is shut down with all connections, as if the process had died.
        let dying =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let serving = dying.spawn(serve_at(worker(), address)).await.unwrap();
        crate::support::register_at(address).await;
        let run = agent(&name).ask("Go").send().await.unwrap();
        while TRIED.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        drop(serving);
        dying.shutdown_background();
        let successor = async {
            loop {
                match tokio::net::TcpListener::bind(address).await {
                    Ok(listener) => break drop(listener),
                    Err(_) => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
                }
            }
            serve_at(worker(), address).await
        };
        let _worker = successor.await;
        let answer = answer(&run).await;
        assert_eq!(answer.text(), "I will find out.");
        let kind = answer.tool_executions()[0].outcome().unwrap_err().kind();
        assert_eq!(kind, tool_core::tool::ToolErrorKind::OutcomeUnknown);
        assert_eq!(TRIED.load(Ordering::SeqCst), 1);
    }
}
