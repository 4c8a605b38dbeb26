//! Cancelled runs, and the calls that they undo.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tool_core::model::ToolDefinition;
use tool_core::run::{Decision, StopReason};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{CallToUndo, ToolFuture};
use tool_core::{Agent, Tool, ToolContext, ToolError, tool, tools};
use tool_restate::{ErrorKind, RemoteOutcome, Worker};

use crate::support::{
    Mortal, agent, client, end_by_engine, failure, free_address, register_at, serve, sql, unique, until,
    waiting_calls, within,
};

static UNBOOKED: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[tool("Books a room", undo = "unbook")]
fn book(room: String) -> String {
    format!("booking of {room}")
}

#[tool("Cancels a booking")]
fn unbook(room: String, #[inject] undone: &CallToUndo) -> String {
    let output = undone.output.as_ref().map(ToString::to_string);
    UNBOOKED.lock().unwrap().push(format!("{room}: {}", output.as_deref().unwrap_or("unknown")));
    "undone".into()
}

fn unbooked(prefix: &str) -> Vec<String> {
    UNBOOKED.lock().unwrap().iter().filter(|one| one.starts_with(prefix)).cloned().collect()
}

static STARTED: Notify = Notify::const_new();

#[tool("Never returns", undo = "unbook")]
async fn book_slowly(room: String) -> String {
    STARTED.notify_one();
    std::future::pending::<()>().await;
    room
}

#[tool("Needs a person", needs_approval)]
fn ask_person() {}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn cancelling_ends_calls_in_flight_and_undoes_each_once() {
    let name = unique("clerk");
    let model = ScriptedModel::new()
        .calls("book", r#"{"room": "c1"}"#)
        .calls_all([("book", r#"{"room": "c2"}"#), ("book_slowly", r#"{"room": "c3"}"#)]);
    let clerk =
        Agent::builder(model).name(&*name).tools(tools![book, book_slowly]).undo_tools(tools![unbook]);
    let _worker = serve(Worker::new().agent(clerk.build().unwrap())).await;
    let run = agent(&name).ask("Book").send().await.unwrap();
    STARTED.notified().await;
    run.cancel().await.unwrap();
    let failure = failure(&run).await;
    assert!(matches!(failure.reason, Some(StopReason::Cancelled)), "{failure:?}");
    assert_eq!(unbooked("c"), ["c3: unknown", "c2: booking of c2", "c1: booking of c1"]);
    assert_eq!(failure.undo_executions.len(), 3);
    // A run that has ended is not changed by another cancellation.
    run.cancel().await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), RemoteOutcome::Failed(_)));
    assert_eq!(unbooked("c").len(), 3);
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_run_that_waits_for_a_person_can_be_cancelled() {
    let name = unique("clerk");
    let model = ScriptedModel::new().calls("book", r#"{"room": "w1"}"#).calls("ask_person", "{}");
    let clerk = Agent::builder(model).name(&*name).tools(tools![book, ask_person]).undo_tools(tools![unbook]);
    let _worker = serve(Worker::new().agent(clerk.build().unwrap())).await;
    let run = agent(&name).ask("Book").send().await.unwrap();
    waiting_calls(&run).await;
    run.cancel().await.unwrap();
    assert!(matches!(failure(&run).await.reason, Some(StopReason::Cancelled)));
    assert_eq!(unbooked("w"), ["w1: booking of w1"]);
}

static TAKEN_BACK: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Orders, and waits to be paid.
struct Order(ToolDefinition);

impl Tool for Order {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn call<'a>(&'a self, _: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        ToolFuture::boxed(async move {
            let order: u32 = context.asker().once("order", async { Ok::<_, ToolError>(17) }).await?;
            context.asker().ask::<bool>(format!("Pay for {order}?")).await?;
            Ok("paid".into())
        })
    }

    fn give_up(&self, context: &ToolContext) {
        TAKEN_BACK.lock().unwrap().push(context.call().unwrap().name.clone());
    }
}

/// Once, also of an agent inside, and before other calls are undone.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_tool_learns_of_calls_that_are_given_up() {
    for is_inside in [false, true] {
        let name = unique("shop");
        let order = Order(ToolDefinition::new(&*name));
        let model = ScriptedModel::new().calls("book", r#"{"room": "g1"}"#).calls(&*name, "{}");
        let mut shop = Agent::builder(model).tools(tools![book]).undo_tools(tools![unbook]).tools(order);
        if is_inside {
            let inside = shop.build().unwrap().as_tool("inner", "Orders");
            shop =
                Agent::builder(ScriptedModel::new().calls("inner", r#"{"question": "Order"}"#)).tools(inside);
        }
        let _worker = serve(Worker::new().agent(shop.name(&*name).build().unwrap())).await;
        let run = agent(&name).ask("Order").send().await.unwrap();
        waiting_calls(&run).await;
        run.cancel().await.unwrap();
        assert!(matches!(failure(&run).await.reason, Some(StopReason::Cancelled)));
        let taken_back = TAKEN_BACK.lock().unwrap().iter().filter(|one| **one == name).count();
        assert_eq!(taken_back, 1, "{is_inside}");
    }
}

#[tool("Fails for good")]
fn break_down() -> Result<(), ToolError> {
    Err(ToolError::fatal("the key was revoked"))
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_failure_undoes_what_was_done_also_with_local_calls() {
    for (room, is_local) in [("f1", false), ("f2", true)] {
        let name = unique("clerk");
        let model =
            ScriptedModel::new().calls("book", format!(r#"{{"room": "{room}"}}"#)).calls("break_down", "{}");
        let clerk =
            Agent::builder(model).name(&*name).tools(tools![book, break_down]).undo_tools(tools![unbook]);
        let worker = Worker::new().agent(clerk.build().unwrap());
        let _worker = serve(if is_local { worker.local_calls() } else { worker }).await;
        let failure = failure(&agent(&name).ask("Book").send().await.unwrap()).await;
        assert!(matches!(failure.reason, Some(StopReason::ToolFailed { .. })), "{failure:?}");
        assert_eq!(unbooked(room), [format!("{room}: booking of {room}")]);
    }
}

static LEFT: AtomicBool = AtomicBool::new(false);

struct Leaves;

impl Drop for Leaves {
    fn drop(&mut self) {
        LEFT.store(true, Ordering::SeqCst);
    }
}

#[tool("Never returns")]
async fn stuck() {
    let _leaves = Leaves;
    std::future::pending().await
}

#[tool("Fails for good, if a person allows it", needs_approval)]
fn break_down_later() -> Result<(), ToolError> {
    Err(ToolError::fatal("the key was revoked"))
}

/// The call in flight was started alone, beside one that waited for a person.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_failure_ends_a_call_in_flight_that_was_started_before_an_approval() {
    let name = unique("clerk");
    let model = ScriptedModel::new().calls_all([("stuck", "{}"), ("break_down_later", "{}")]);
    let clerk = Agent::builder(model).name(&*name).tools(tools![stuck, break_down_later]).build().unwrap();
    let _worker = serve(Worker::new().agent(clerk)).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    let calls = waiting_calls(&run).await;
    run.decide(&calls[0].id, Decision::approve()).await.unwrap();
    let failure = failure(&run).await;
    assert!(matches!(failure.reason, Some(StopReason::ToolFailed { .. })), "{failure:?}");
    while !LEFT.load(Ordering::SeqCst) {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_model_that_fails_for_good_undoes_what_was_done() {
    let name = unique("clerk");
    let model = ScriptedModel::new().calls("book", r#"{"room": "m1"}"#).fails("the line is dead");
    let clerk = Agent::builder(model).name(&*name).tools(tools![book]).undo_tools(tools![unbook]);
    let _worker = serve(Worker::new().model_attempts(1).agent(clerk.build().unwrap())).await;
    let failure = failure(&agent(&name).ask("Book").send().await.unwrap()).await;
    assert!(failure.message.contains("the line is dead"), "{}", failure.message);
    assert_eq!(unbooked("m"), ["m1: booking of m1"]);
}

static REFUNDS: AtomicU32 = AtomicU32::new(0);
static MAY_REFUND: AtomicBool = AtomicBool::new(false);

#[tool("Charges somebody", undo = "refund")]
fn charge() {}

#[tool("Returns a charge")]
async fn refund() -> &'static str {
    REFUNDS.fetch_add(1, Ordering::SeqCst);
    while !MAY_REFUND.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    "returned"
}

/// Where a run is cancelled for the second time.
#[derive(Clone, Copy, Debug)]
enum Second {
    BeforeTheWorkerDies,
    WhileNoWorkerLives,
    WhileItIsRepeated,
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn an_undo_survives_a_death_and_further_cancellations() {
    for is_local in [false, true] {
        for second in [Second::BeforeTheWorkerDies, Second::WhileNoWorkerLives, Second::WhileItIsRepeated] {
            REFUNDS.store(0, Ordering::SeqCst);
            MAY_REFUND.store(false, Ordering::SeqCst);
            let name = unique("clerk");
            let model = ScriptedModel::new().calls("charge", "{}").calls("ask_person", "{}");
            let clerk = Agent::builder(model).name(&*name).tools(tools![charge, ask_person]);
            let clerk = clerk.undo_tools(tools![refund]).build().unwrap();
            let worker = || {
                let worker = Worker::new().agent(clerk.clone());
                if is_local { worker.local_calls() } else { worker }
            };
            let address = free_address();
            let first = Mortal::start(worker(), address).await;
            register_at(address).await;
            let run = agent(&name).ask("Charge").send().await.unwrap();
            waiting_calls(&run).await;
            run.cancel().await.unwrap();
            until("the first undo", || REFUNDS.load(Ordering::SeqCst) == 1).await;
            if matches!(second, Second::BeforeTheWorkerDies) {
                run.cancel().await.unwrap();
            }
            drop(first);
            if matches!(second, Second::WhileNoWorkerLives) {
                end_by_engine("cancel", &name, run.key()).await;
            }
            let _second = Mortal::start(worker(), address).await;
            if matches!(second, Second::WhileItIsRepeated) {
                until("the second undo", || REFUNDS.load(Ordering::SeqCst) == 2).await;
                run.cancel().await.unwrap();
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            MAY_REFUND.store(true, Ordering::SeqCst);
            let what = format!("{second:?}, local: {is_local}");
            let failure = within(&what, failure(&run)).await;
            assert!(matches!(failure.reason, Some(StopReason::Cancelled)), "{what}: {failure:?}");
            let undone: Vec<_> =
                failure.undo_executions.iter().map(|one| one.output().map(ToString::to_string)).collect();
            assert_eq!(undone, [Some("returned".to_owned())], "{what}");
        }
    }
}

static TRIES: AtomicU32 = AtomicU32::new(0);
static TRY_LEFT: AtomicBool = AtomicBool::new(false);

struct LeavesTry;

impl Drop for LeavesTry {
    fn drop(&mut self) {
        TRY_LEFT.store(true, Ordering::SeqCst);
    }
}

#[tool("Never returns", undo = "unbook")]
async fn book_for_ever(room: String) -> String {
    TRY_LEFT.store(false, Ordering::SeqCst);
    TRIES.fetch_add(1, Ordering::SeqCst);
    let _leaves = LeavesTry;
    std::future::pending::<()>().await;
    room
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_call_that_is_repeated_after_a_death_is_dropped_by_a_cancellation() {
    let name = unique("clerk");
    let model = ScriptedModel::new().calls("book_for_ever", r#"{"room": "r1"}"#);
    let clerk = Agent::builder(model).name(&*name).tools(tools![book_for_ever]);
    let clerk = clerk.undo_tools(tools![unbook]).build().unwrap();
    let address = free_address();
    let first = Mortal::start(Worker::new().agent(clerk.clone()), address).await;
    register_at(address).await;
    let run = agent(&name).ask("Book").send().await.unwrap();
    until("the call", || TRIES.load(Ordering::SeqCst) == 1).await;
    drop(first);
    let _second = Mortal::start(Worker::new().agent(clerk), address).await;
    until("the second call", || TRIES.load(Ordering::SeqCst) == 2).await;
    run.cancel().await.unwrap();
    let failure = within("the failure", failure(&run)).await;
    assert!(matches!(failure.reason, Some(StopReason::Cancelled)), "{failure:?}");
    assert!(TRY_LEFT.load(Ordering::SeqCst));
    assert_eq!(unbooked("r1"), ["r1: unknown"]);
}

/// The engine tries the question seldom by then, and delivers the cancellation first.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_cancellation_while_no_worker_lives_is_not_lost() {
    let (name, address) = (unique("clerk"), free_address());
    let model = ScriptedModel::new().calls("ask_person", "{}");
    let clerk = Agent::builder(model).name(&*name).tools(tools![ask_person]).build().unwrap();
    let first = Mortal::start(Worker::new().agent(clerk.clone()), address).await;
    register_at(address).await;
    drop(first);
    let run = client().timeout(Duration::from_millis(500)).agent(&*name).ask("Go").send().await.unwrap();
    let query = format!(
        "SELECT CAST(retry_count AS BIGINT) AS retries FROM sys_invocation WHERE target_service_name = '{name}'"
    );
    while sql(&query).await["retries"].as_u64().is_none_or(|retries| retries < 7) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(run.cancel().await.unwrap_err().kind(), ErrorKind::Timeout);
    let _second = Mortal::start(Worker::new().agent(clerk), address).await;
    let run = agent(&name).run(run.key());
    let cancelled = async {
        loop {
            match run.wait().await.unwrap() {
                RemoteOutcome::Waiting(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                RemoteOutcome::Failed(failure) => break failure.reason,
                other => panic!("{other:?}"),
            }
        }
    };
    assert!(matches!(within("the end", cancelled).await, Some(StopReason::Cancelled)));
}
