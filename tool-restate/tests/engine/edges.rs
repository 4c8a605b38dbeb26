//! Trees of agents where steps, workers and limits meet.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tool_core::layer::{CallVerdict, guard, rewrite};
use tool_core::model::{
    AssistantMessage, ChatModel, ChatRequest, ChatResponse, Cost, Currency, ModelPrices, Prices, ToolPolicy,
    Usage,
};
use tool_core::provider::ModelFuture;
use tool_core::run::{Decision, StopReason};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{Asker, Attempt};
use tool_core::{Agent, Event, ToolCall, ToolError, ToolSet, tool, tools};
use tool_restate::{ChangedTools, RemoteOutcome, Worker};

use crate::agents::waits_of;
use crate::support::{Mortal, agent, answer, failure, free_address, register_at, serve, unique, within};

static UNPAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[tool("Pays", undo = "unspend")]
fn spend(what: String) -> String {
    format!("paid {what}")
}

#[tool("Takes a payment back")]
fn unspend(what: String) -> &'static str {
    UNPAID.lock().unwrap().push(what);
    "taken back"
}

fn unpaid(what: &str) -> usize {
    UNPAID.lock().unwrap().iter().filter(|one| *one == what).count()
}

#[tool("Wires money", needs_approval)]
fn wire(euros: u32) -> String {
    format!("wired {euros}")
}

mod newer {
    use tool_core::tool;

    #[tool("Wires money at once", needs_approval)]
    pub(super) fn wire(euros: u32) -> String {
        format!("wired {euros} at once")
    }
}

/// Nothing changed in the agent, but the worker has another tool beside it.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn calls_of_agents_are_undone_on_a_worker_with_other_tools() {
    let (name, address) = (unique("desk"), free_address());
    let inner = ScriptedModel::new().calls("spend", r#"{"what": "x"}"#).says("Paid.");
    let outer = ScriptedModel::new()
        .calls("billing", r#"{"question": "Pay"}"#)
        .calls("wire", r#"{"euros": 5}"#)
        .says("Done.");
    let worker = |tools: ToolSet| {
        let billing = Agent::builder(inner.clone()).tools(tools![spend]).undo_tools(tools![unspend]);
        let billing = billing.build().unwrap().as_tool("billing", "Bills");
        let desk = Agent::builder(outer.clone()).name(&*name).tools(tools).tools(billing);
        Worker::new().agent(desk.build().unwrap()).changed_tools(ChangedTools::Fail)
    };
    let old = Mortal::start(worker(tools![wire]), address).await;
    register_at(address).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    let wait = waits_of(&run, &["call_2_0"]).await.remove(0);
    drop(old);
    let _new = Mortal::start(worker(tools![newer::wire]), address).await;
    run.decide(&wait.id, Decision::approve()).await.unwrap();
    let failure = within("the end", failure(&run)).await;
    assert!(failure.message.contains("(changed: `wire`)"), "{}", failure.message);
    assert_eq!(unpaid("x"), 1);
    assert_eq!(failure.undo_executions.len(), 1);
}

#[tool("Leaks", attempts = 2)]
fn leak(#[inject] attempt: &Attempt) -> Result<&'static str, &'static str> {
    if attempt.number == 1 { Err("the password is hunter2") } else { Ok("fine") }
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn the_error_of_an_earlier_attempt_is_hidden_as_in_one_process() {
    let clerk = |name: &str| {
        let model = ScriptedModel::new().calls("leak", "{}").says("Done.");
        let hide = rewrite::output(|_, output| output.to_string().replace("hunter2", "…"));
        Agent::builder(model).name(name).tools(tools![leak]).layer(hide).build().unwrap()
    };
    let retried = |event: &Event| match event {
        Event::CallRetried(execution) => Some(execution.error().unwrap().to_string()),
        _ => None,
    };
    let (mut events, mut expected) = (clerk("here").ask("Go").stream(), Vec::new());
    while let Some(event) = events.next().await {
        expected.extend(retried(&event.unwrap()));
    }
    assert_eq!(expected, ["the attempt failed"]);
    let name = unique("clerk");
    let _worker = serve(Worker::new().agent(clerk(&name))).await;
    let run = agent(&name).ask("Go").events().send().await.unwrap();
    assert_eq!(answer(&run).await.text(), "Done.");
    let (mut events, mut read) = (run.events(0), Vec::new());
    while let Some(record) = events.next().await.unwrap() {
        read.extend(retried(&record.event));
    }
    assert_eq!(read, expected);
}

/// Counts the requests that it answers.
struct Counts(Arc<AtomicU32>);

impl ChatModel for Counts {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move {
            self.0.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(100)).await;
            let usage = Usage::new(10, 500);
            Ok(ChatResponse::new(AssistantMessage::text("I am here.")).with_usage(usage))
        })
    }

    fn model_name(&self) -> Option<&str> {
        Some("counts")
    }
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn agents_asked_at_once_do_not_spend_the_same_money() {
    let prices = || {
        let prices = |_: &str, _| Some(ModelPrices::new(0.0, 1.0).with_max_output_tokens(500));
        Prices::from_fn(Currency::USD, prices)
    };
    let desk = |name: &str, asked: &Arc<AtomicU32>| {
        let inner = || Agent::builder(Counts(Arc::clone(asked))).prices(prices()).build().unwrap();
        let calls =
            [("a", r#"{"question": "?"}"#), ("b", r#"{"question": "?"}"#), ("c", r#"{"question": "?"}"#)];
        let model = ScriptedModel::new().calls_all(calls).with_usage(Usage::new(1, 1)).says("Done.");
        let desk =
            Agent::builder(model).name(name).prices(prices()).limits(|l| l.max_cost(Cost::usd(0.001_010)));
        let desk = ["a", "b", "c"].into_iter().fold(desk, |desk, one| desk.tools(inner().as_tool(one, "It")));
        desk.build().unwrap()
    };
    let asked = Arc::new(AtomicU32::new(0));
    desk("here", &asked).ask("Go").await.unwrap_err();
    let (name, durable) = (unique("desk"), Arc::new(AtomicU32::new(0)));
    let _worker = serve(Worker::new().agent(desk(&name, &durable))).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    let paused = within("the pause", run.wait()).await.unwrap();
    assert!(matches!(paused, RemoteOutcome::Paused(_)), "{paused:?}");
    assert_eq!((asked.load(Ordering::SeqCst), durable.load(Ordering::SeqCst)), (2, 2));
}

#[tool("Works")]
fn work(number: u32) -> u32 {
    number
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn layers_of_a_set_judge_the_call_of_an_agent_once() {
    let desk = |name: &str, judged: &Arc<AtomicU32>| {
        let judged = Arc::clone(judged);
        let count = guard::call(move |_: &ToolCall| {
            judged.fetch_add(1, Ordering::SeqCst);
            CallVerdict::Pass
        });
        let inner = ScriptedModel::new()
            .calls("work", r#"{"number": 1}"#)
            .calls("work", r#"{"number": 2}"#)
            .says("Worked.");
        let inner = Agent::builder(inner).tools(tools![work]).build().unwrap().as_tool("inner", "Works");
        let inner = ToolSet::default().with(inner).unwrap().layer(count);
        let outer = ScriptedModel::new().calls("inner", r#"{"question": "?"}"#).says("Done.");
        Agent::builder(outer).name(name).tools(inner).build().unwrap()
    };
    let local = Arc::new(AtomicU32::new(0));
    desk("here", &local).ask("Go").await.unwrap();
    let (name, durable) = (unique("desk"), Arc::new(AtomicU32::new(0)));
    let _worker = serve(Worker::new().agent(desk(&name, &durable))).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    assert_eq!(answer(&run).await.text(), "Done.");
    assert_eq!((local.load(Ordering::SeqCst), durable.load(Ordering::SeqCst)), (1, 1));
}

/// The hash of the handoff covers the tools of its agent.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_changed_tool_after_a_handoff_is_not_executed() {
    let (name, address) = (unique("desk"), free_address());
    let outer = ScriptedModel::new().calls("billing", "{}");
    let other = ScriptedModel::new().calls("wire", r#"{"euros": 5}"#).says("Done.");
    let worker = |tools: ToolSet| {
        let billing = Agent::builder(other.clone()).tools(tools).build().unwrap();
        let desk = Agent::builder(outer.clone()).name(&*name).handoff_to("billing", "Bills", &billing);
        Worker::new().agent(desk.build().unwrap()).changed_tools(ChangedTools::Continue)
    };
    let old = Mortal::start(worker(tools![wire]), address).await;
    register_at(address).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    let wait = waits_of(&run, &["call_2_0"]).await.remove(0);
    drop(old);
    let _new = Mortal::start(worker(tools![newer::wire]), address).await;
    register_at(address).await;
    run.decide(&wait.id, Decision::approve()).await.unwrap();
    let outcome = within("the end", run.wait()).await.unwrap();
    let RemoteOutcome::Answer(answer) = outcome else { panic!("{outcome:?}") };
    let error = answer.tool_executions().last().unwrap().error().unwrap().to_string();
    assert_eq!(error, "the call was not executed: the tool `wire` has changed since the call was approved");
}

/// The agent has one more tool now. What undoes its calls is the same.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn calls_of_a_changed_agent_are_undone() {
    let (name, address) = (unique("desk"), free_address());
    let inner = ScriptedModel::new()
        .calls("spend", r#"{"what": "y"}"#)
        .calls("wire", r#"{"euros": 5}"#)
        .says("Paid.");
    let outer = ScriptedModel::new()
        .calls("billing", r#"{"question": "Pay"}"#)
        .calls("work", r#"{"number": 1}"#)
        .calls("wire", r#"{"euros": 5}"#);
    let worker = |more: ToolSet| {
        let billing = Agent::builder(inner.clone()).tools(tools![spend, wire]).tools(more);
        let billing = billing.undo_tools(tools![unspend]).build().unwrap();
        let desk = Agent::builder(outer.clone()).name(&*name).tools(tools![work, wire]);
        let desk = desk.tools(billing.as_tool("billing", "Bills")).build().unwrap();
        Worker::new().agent(desk).changed_tools(ChangedTools::Continue)
    };
    let old = Mortal::start(worker(tools![]), address).await;
    register_at(address).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    let wait = waits_of(&run, &["call_1_0/call_2_0"]).await.remove(0);
    run.decide(&wait.id, Decision::approve()).await.unwrap();
    let wait = waits_of(&run, &["call_3_0"]).await.remove(0);
    drop(old);
    let _new = Mortal::start(worker(tools![work]), address).await;
    // The model has no further reply, which ends the run.
    run.decide(&wait.id, Decision::approve()).await.unwrap();
    let failure = within("the end", failure(&run)).await;
    let undone = failure.undo_executions.iter().map(|one| one.outcome().map(ToString::to_string).ok());
    assert_eq!(undone.collect::<Vec<_>>(), [Some("calls undone: 1".to_owned())]);
    assert_eq!(unpaid("y"), 1);
}

/// Always replies at length.
struct Long;

impl ChatModel for Long {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async { Ok(ChatResponse::new(AssistantMessage::text("x".repeat(14 << 20)))) })
    }
}

/// The replies of one step together exceed the size of a stored value. The server sends them one after the other, and two replies must fit
/// into its limit of memory per invocation.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn large_replies_of_agents_asked_at_once_are_stored() {
    let name = unique("desk");
    let inner = || Agent::builder(Long).build().unwrap();
    let calls = [("a", r#"{"question": "?"}"#), ("b", r#"{"question": "?"}"#)];
    let model = ScriptedModel::new().calls_all(calls).says("Done.");
    let desk = Agent::builder(model).name(&*name).tools(inner().as_tool("a", "A"));
    let desk = desk.tools(inner().as_tool("b", "B")).build().unwrap();
    let _worker = serve(Worker::new().agent(desk)).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    let answer = within("the answer", answer(&run)).await;
    assert_eq!(answer.text(), "Done.");
}

static UNDOING: Notify = Notify::const_new();
static RELEASED: Notify = Notify::const_new();

#[tool("Books", undo = "unbook")]
fn book(what: String) -> String {
    what
}

/// Waits for a booking of the agent.
#[tool("Cancels a booking")]
async fn unbook(what: String) -> &'static str {
    UNPAID.lock().unwrap().push(what.clone());
    if what == "inner" {
        UNDOING.notify_one();
        RELEASED.notified().await;
    }
    "cancelled"
}

#[tool("Fails for good")]
fn break_down() -> Result<(), ToolError> {
    Err(ToolError::fatal("broken"))
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_run_is_cancelled_while_an_agent_undoes_its_calls() {
    for cancellations in 1..=2 {
        UNPAID.lock().unwrap().retain(|what| !["inner", "outer"].contains(&&**what));
        let name = unique("desk");
        let inner = ScriptedModel::new().calls("book", r#"{"what": "inner"}"#).calls("break_down", "{}");
        let inner = Agent::builder(inner).tools(tools![book, break_down]).undo_tools(tools![unbook]);
        let outer = ScriptedModel::new()
            .calls("book", r#"{"what": "outer"}"#)
            .calls("inner", r#"{"question": "?"}"#)
            .says("Done.");
        let desk = Agent::builder(outer).name(&*name).tools(tools![book]).undo_tools(tools![unbook]);
        let desk = desk.tools(inner.build().unwrap().as_tool("inner", "Books")).build().unwrap();
        let _worker = serve(Worker::new().agent(desk)).await;
        let run = agent(&name).ask("Go").send().await.unwrap();
        within("the undo", UNDOING.notified()).await;
        for _ in 0..cancellations {
            run.cancel().await.unwrap();
            // The next cancellation is one of its own.
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        RELEASED.notify_one();
        let failure = within("the end", failure(&run)).await;
        assert!(matches!(failure.reason, Some(StopReason::Cancelled)), "{failure:?}");
        assert_eq!((unpaid("inner"), unpaid("outer")), (1, 1));
    }
}

#[tool("Needs a password")]
async fn log_in(#[inject] user: &Asker) -> String {
    match user.ask::<String>("Password?").secret().await {
        Ok(_) => "logged in".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn agents_ask_for_no_secrets() {
    let name = unique("desk");
    let inner = ScriptedModel::new().calls("log_in", "{}").says("No.");
    let inner = Agent::builder(inner).tools(tools![log_in]).build().unwrap().as_tool("inner", "Logs in");
    let outer = ScriptedModel::new().calls("inner", r#"{"question": "?"}"#).says("Done.");
    let desk = Agent::builder(outer).name(&*name).tools(inner).build().unwrap();
    let _worker = serve(Worker::new().agent(desk)).await;
    let answer = answer(&agent(&name).ask("Go").send().await.unwrap()).await;
    let output = answer.inner_runs()[0].run().tool_executions()[0].output().unwrap().to_string();
    assert!(output.contains("the engine would store the secret answer"), "{output}");
}

/// Each attempt of the agent waits for a decision of its own.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn an_agent_that_is_asked_again_waits_again() {
    let name = unique("desk");
    let inner = ScriptedModel::new()
        .calls("wire", r#"{"euros": 5}"#)
        .calls("work", r#"{"number": 1}"#)
        .calls("wire", r#"{"euros": 5}"#)
        .says("Wired.");
    let inner = Agent::builder(inner).tools(tools![wire, work]).build().unwrap().as_tool("inner", "Wires");
    let inner = inner.limits(|l| l.max_turns(2)).policy(ToolPolicy::default().with_attempts(2));
    let outer = ScriptedModel::new().calls("inner", r#"{"question": "?"}"#).says("Done.");
    let desk = Agent::builder(outer).name(&*name).tools(inner).build().unwrap();
    let _worker = serve(Worker::new().agent(desk)).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    let path = ["call_1_0/call_1_0"];
    let first = waits_of(&run, &path).await.remove(0);
    run.decide(&first.id, Decision::approve()).await.unwrap();
    let second = async {
        loop {
            if let RemoteOutcome::Waiting(waits) = run.wait().await.unwrap()
                && waits[0].id != first.id
            {
                break waits[0].id.clone();
            }
        }
    };
    let second = within("the second wait", second).await;
    run.decide(&second, Decision::approve()).await.unwrap();
    let answer = within("the answer", answer(&run)).await;
    assert_eq!((answer.text(), answer.inner_runs().len()), ("Done.", 2));
}

/// The model reads that the effects of the agent remain, and its calls are undone with the other calls of the run.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn an_agent_that_has_changed_leaves_what_it_has_done() {
    let (name, address) = (unique("desk"), free_address());
    let inner = ScriptedModel::new().calls("spend", r#"{"what": "z"}"#).calls("wire", r#"{"euros": 5}"#);
    let outer = ScriptedModel::new().calls("billing", r#"{"question": "Pay"}"#).calls("break_down", "{}");
    let worker = |more: ToolSet| {
        let billing = Agent::builder(inner.clone()).tools(tools![spend, wire]).tools(more);
        let billing = billing.undo_tools(tools![unspend]).build().unwrap();
        let desk = Agent::builder(outer.clone()).name(&*name).tools(tools![break_down]);
        let desk = desk.tools(billing.as_tool("billing", "Bills")).build().unwrap();
        Worker::new().agent(desk).changed_tools(ChangedTools::Continue)
    };
    let old = Mortal::start(worker(tools![]), address).await;
    register_at(address).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    let wait = waits_of(&run, &["call_1_0/call_2_0"]).await.remove(0);
    drop(old);
    let _new = Mortal::start(worker(tools![work]), address).await;
    run.decide(&wait.id, Decision::approve()).await.unwrap();
    let failure = within("the end", failure(&run)).await;
    let error = failure.tool_executions[0].error().unwrap();
    assert_eq!(
        error.to_string(),
        "the agent `billing` has changed and cannot continue; what its calls have done so far remains"
    );
    assert!(matches!(failure.reason, Some(StopReason::ToolFailed { .. })), "{failure:?}");
    assert_eq!(unpaid("z"), 1);
}
