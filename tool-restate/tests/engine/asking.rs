//! Questions and answers, retries and limits.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tool_core::run::StopReason;
use tool_core::testing::ScriptedModel;
use tool_core::tool::{Attempt, IdempotencyKey};
use tool_core::{Agent, Approval, tool, tools};
use tool_restate::Worker;

use crate::support::{agent, answer, failure, serve, unique, waiting_calls};

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

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_key_starts_one_run() {
    let name = unique("clerk");
    let model = ScriptedModel::new().says("First.");
    let clerk = Agent::builder(model.clone()).name(&*name).build().unwrap();
    let _worker = serve(Worker::new().agent(clerk)).await;
    let first = agent(&name).ask("One").key("order 7/ä").send().await.unwrap();
    let second = agent(&name).ask("Two").key("order 7/ä").send().await.unwrap();
    assert!(first.is_new() && !second.is_new());
    assert_eq!(answer(&second).await.text(), "First.");
    assert_eq!(answer(&agent(&name).run("order 7/ä")).await.text(), "First.");
    assert_eq!(model.requests().len(), 1);
}

static ATTEMPTS: Mutex<Vec<(String, u32)>> = Mutex::new(Vec::new());

#[tool("Is busy at first", attempts = 3)]
fn busy(#[inject] key: &IdempotencyKey, #[inject] attempt: &Attempt) -> Result<&'static str, &'static str> {
    ATTEMPTS.lock().unwrap().push((key.to_string(), attempt.number));
    if attempt.number < 3 { Err("busy") } else { Ok("done") }
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn the_attempts_of_a_tool_do_not_multiply() {
    let name = unique("clerk");
    let model = ScriptedModel::new().calls("busy", "{}").says("Done.");
    let clerk = Agent::builder(model).name(&*name).tools(tools![busy]).build().unwrap();
    let _worker = serve(Worker::new().agent(clerk)).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    assert_eq!(answer(&run).await.tool_executions()[0].attempts(), 3);
    let attempts = std::mem::take(&mut *ATTEMPTS.lock().unwrap());
    assert_eq!(attempts.iter().map(|(_, number)| *number).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(attempts.iter().all(|(key, _)| *key == attempts[0].0), "{attempts:?}");
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_failed_request_to_the_model_is_repeated_only_as_often_as_set() {
    for (attempts, expected) in [(1, None), (2, Some("Back again."))] {
        let name = unique("clerk");
        let model = ScriptedModel::new().fails("the line is dead").says("Back again.");
        let clerk = Agent::builder(model).name(&*name).build().unwrap();
        let _worker = serve(Worker::new().agent(clerk).model_attempts(attempts)).await;
        let run = agent(&name).ask("Hello").send().await.unwrap();
        match expected {
            Some(expected) => assert_eq!(answer(&run).await.text(), expected),
            None => {
                let failure = failure(&run).await;
                assert!(failure.message.contains("the line is dead"), "{}", failure.message);
                assert!(failure.reason.is_none());
            }
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Customer {
    name: String,
}

#[tool("Returns the name of the customer")]
fn customer_name(#[inject] customer: &Customer) -> String {
    customer.name.clone()
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn the_context_of_a_question_reaches_its_calls() {
    for is_local in [false, true] {
        let name = unique("clerk");
        let model = ScriptedModel::new().calls("customer_name", "{}").says("Ada.");
        let clerk = Agent::builder(model).name(&*name).tools(tools![customer_name]).build().unwrap();
        let worker = Worker::new().agent(clerk).context_json::<Customer>();
        let _worker = serve(if is_local { worker.local_calls() } else { worker }).await;
        let customer = Customer { name: "Ada".into() };
        let run = agent(&name).ask("Who am I?").context_json(&customer).send().await.unwrap();
        let answer = answer(&run).await;
        assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "Ada");
    }
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_run_whose_tools_lack_a_value_is_refused_before_the_model_is_asked() {
    let name = unique("clerk");
    let model = ScriptedModel::new().says("Never said.");
    let clerk = Agent::builder(model.clone()).name(&*name).tools(tools![customer_name]).build().unwrap();
    let _worker = serve(Worker::new().agent(clerk)).await;
    let refused = failure(&agent(&name).ask("Who am I?").send().await.unwrap()).await;
    assert!(refused.message.contains("Customer"), "{}", refused.message);
    let customer = Customer { name: "Ada".into() };
    let unread = agent(&name).ask("Who am I?").context_json(&customer).send().await.unwrap();
    let expected = "the question has a context `Customer` that the worker does not read; \
                    add `.context_json::<Customer>()` to it";
    assert_eq!(failure(&unread).await.message, expected);
    assert_eq!(model.requests().len(), 0);
}

static SLOW_CANCELLED: AtomicU32 = AtomicU32::new(0);

struct Noted;

impl Drop for Noted {
    fn drop(&mut self) {
        SLOW_CANCELLED.fetch_add(1, Ordering::SeqCst);
    }
}

#[tool("Never returns")]
async fn stuck() -> String {
    let _noted = Noted;
    std::future::pending().await
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn the_time_limit_ends_a_run_whose_call_never_returns() {
    for (is_local, cancelled) in [(false, 1), (true, 2)] {
        let name = unique("clerk");
        let model = ScriptedModel::new().calls("stuck", "{}").says("Never said.");
        let limit = Duration::from_millis(300);
        let clerk = Agent::builder(model).name(&*name).tools(tools![stuck]).max_time(limit).build().unwrap();
        let worker = Worker::new().agent(clerk);
        let _worker = serve(if is_local { worker.local_calls() } else { worker }).await;
        let failure = failure(&agent(&name).ask("Go").send().await.unwrap()).await;
        assert!(matches!(failure.reason, Some(StopReason::MaxTime(_))), "{failure:?}");
        // The call was cancelled, and its future dropped.
        while SLOW_CANCELLED.load(Ordering::SeqCst) < cancelled {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tool("Reads the balance")]
fn balance() -> u32 {
    500
}

#[tool("Takes half a second", needs_approval)]
async fn work() -> &'static str {
    tokio::time::sleep(Duration::from_millis(500)).await;
    "worked"
}

/// A timer that was set for the first call is not up in the middle of the second.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn the_time_of_a_person_does_not_count() {
    let name = unique("clerk");
    let model = ScriptedModel::new().calls_all([("balance", "{}"), ("work", "{}")]).says("Done.");
    let limit = Duration::from_secs(2);
    let clerk = Agent::builder(model).name(&*name).tools(tools![balance, work]).max_time(limit);
    let _worker = serve(Worker::new().agent(clerk.build().unwrap())).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    let calls = waiting_calls(&run).await;
    tokio::time::sleep(Duration::from_millis(1800)).await;
    run.resolve_approval(&calls[0], Approval::Approve).await.unwrap();
    assert_eq!(answer(&run).await.text(), "Done.");
}
