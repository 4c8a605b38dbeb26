//! Agents that are tools of others: their runs are parts of the outermost run.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{Barrier, Notify};
use tool_core::agent::AgentBuilder;
use tool_core::model::{
    AssistantMessage, ChatModel, ChatRequest, ChatResponse, FinishReason, ModelError, ToolPolicy,
};
use tool_core::provider::ModelFuture;
use tool_core::run::{self, Answer, Decision, RunLimits, StopReason, Wait, WaitReason};
use tool_core::schemars::JsonSchema;
use tool_core::testing::ScriptedModel;
use tool_core::tool::{AskError, Asker, Attempt, CallToUndo, ToolExecution};
use tool_core::{Agent, Event, ToolCall, ToolError, tool, tools};
use tool_restate::{ErrorKind, RemoteOutcome, RemoteRun, Worker};

use crate::support::{
    Mortal, agent, answer, client, failure, free_address, register_at, serve, unique, until, within,
};

async fn waits(run: &RemoteRun) -> Vec<Wait> {
    match run.wait().await.unwrap() {
        RemoteOutcome::Waiting(waits) => waits,
        other => panic!("{other:?}"),
    }
}

fn worker(agent: Agent, is_local: bool) -> Worker {
    let worker = Worker::new().agent(agent);
    if is_local { worker.local_calls() } else { worker }
}

fn describe_calls<'a>(what: &str, executions: impl IntoIterator<Item = &'a ToolExecution>) -> Vec<String> {
    let describe = |one: &ToolExecution| match one.outcome() {
        Ok(output) => format!("{what} {} {}: {output}", one.call().id, one.call()),
        Err(error) => format!("{what} {} {}: {error}", one.call().id, one.call()),
    };
    executions.into_iter().map(describe).collect()
}

/// Describes a run and those inside of it.
fn describe_run(path: &str, run: &run::Run) -> Vec<String> {
    let mut lines: Vec<_> =
        run.messages().iter().map(|one| format!("{path} {one:?} {}", one.text())).collect();
    lines.extend(describe_calls(path, run.tool_executions()));
    lines.extend(describe_calls(path, run.undo_executions()));
    for inner in run.inner_runs() {
        lines.extend(describe_run(&format!("{path}/{}:{}", inner.call_id(), inner.agent()), inner.run()));
    }
    lines
}

pub(crate) fn describe_answer(answer: &Answer) -> Vec<String> {
    let mut lines = vec![answer.text().to_owned(), format!("{:?}", answer.usage())];
    lines.extend(answer.new_messages().iter().map(|one| format!("{one:?} {}", one.text())));
    lines.extend(describe_calls("", answer.tool_executions()));
    for inner in answer.inner_runs() {
        lines.extend(describe_run(&format!("{}:{}", inner.call_id(), inner.agent()), inner.run()));
    }
    lines
}

pub(crate) fn describe_event(event: &Event) -> Option<String> {
    Some(match event {
        Event::Agent { agent, call_id, event, .. } => {
            format!("{agent} {call_id}: {}", describe_event(event)?)
        }
        Event::Question { text, .. } => format!("question {text}"),
        Event::TurnStarted { turn, messages, .. } => format!("turn {turn}, {messages} messages"),
        Event::Text(text) => format!("text {text}"),
        Event::CallReady { index, call, .. } => format!("ready {index} {call}"),
        Event::TurnFinished { turn, response, .. } => {
            format!("turn {turn} finished {}", response.message.text)
        }
        Event::CallStarted(call) => format!("started {call}"),
        Event::CallProgress { id, progress, .. } => format!("progress of {id}: {}", progress.text),
        Event::CallRetried(execution) => format!("retried {}", describe_calls("", [execution]).remove(0)),
        Event::CallDecided(decision) => format!("{:?} {}", decision.record.kind, decision.call_id),
        Event::CallFinished(execution) => format!("finished {}", describe_calls("", [execution]).remove(0)),
        Event::CallAnnounced { .. } | Event::Arguments { .. } | Event::Charged(_) => return None,
        Event::Done(answer) => format!("done {}", answer.text()),
        Event::HandedOff { agent, .. } => format!("handed off to {agent}"),
        other => panic!("{other:?}"),
    })
}

/// The customer of a question.
#[derive(Clone, Serialize, Deserialize)]
struct Customer(String);

#[tool("Refunds an invoice")]
fn refund(
    invoice: u32,
    #[inject] customer: &Customer,
    #[inject] progress: &tool_core::tool::Progress,
) -> String {
    progress.report("refunding");
    format!("refunded {invoice} to {}", customer.0)
}

#[tool("Is busy at first", attempts = 2)]
fn busy(#[inject] attempt: &Attempt) -> Result<&'static str, &'static str> {
    if attempt.number == 1 { Err("busy") } else { Ok("idle") }
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(crate = "tool_core::schemars")]
struct Invoice {
    invoice: u32,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(crate = "tool_core::schemars")]
struct Report {
    is_paid: bool,
}

/// Calls at three levels, two agents at once, an answer of a wrong form, a retry, a mistake, and an agent that gives up.
fn tree(name: &str) -> Agent {
    let model = ScriptedModel::new().calls("busy", "{}").calls("final_answer", r#"{"is_paid": 3}"#);
    let ledger = Agent::builder(model.calls("final_answer", r#"{"is_paid": true}"#)).tools(tools![busy]);
    let ledger =
        ledger.build().unwrap().as_tool("ledger", "Reports on an invoice").typed::<Invoice, Report>();
    let model = ScriptedModel::new()
        .calls_all([("refund", r#"{"invoice": 7}"#), ("ledger", r#"{"invoice": "7"}"#), ("ledger", "{}")])
        .calls("nothing", "{}")
        .says("Invoice 7 is refunded.");
    let billing = Agent::builder(model).instructions("You do billing.").tools(tools![refund]).tools(ledger);
    let billing = billing.build().unwrap().as_tool("billing", "Bills").pass_context::<Customer>();
    // Its first attempt reaches the limit of turns.
    let lost = ScriptedModel::new().calls("busy", "{}").calls("busy", r#"{"again": 1}"#).says("Found.");
    let lost = Agent::builder(lost).tools(tools![busy]).build().unwrap().as_tool("lost", "Never answers");
    let twice = ToolPolicy::default().with_attempts(2);
    let model = ScriptedModel::new()
        .calls_all([("billing", r#"{"question": "Refund 7"}"#), ("lost", r#"{"question": "Find it"}"#)])
        .calls("billing", r#"{"query": 1}"#)
        .says("Done.");
    let desk = Agent::builder(model)
        .name(name)
        .tools(billing.stream_text())
        .tools(lost.limits(|l| l.max_turns(2)).policy(twice));

    desk.build().unwrap()
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_tree_runs_as_in_one_process() {
    let ask = |name: &str| tree(name).ask("Money back").context(Customer("Ada".into()));
    let name = unique("desk");
    let expected = describe_answer(&ask(&name).await.unwrap());
    assert!(expected.iter().any(|line| line.ends_with("refunded 7 to Ada")), "{expected:#?}");
    let (mut events, mut expected_events) = (ask(&name).stream(), Vec::new());
    while let Some(event) = events.next().await {
        expected_events.extend(describe_event(&event.unwrap()));
    }
    expected_events.sort();
    for is_local in [false, true] {
        let name = unique("desk");
        let worker = worker(tree(&name), is_local).context_json::<Customer>();
        let _worker = serve(worker.publish_events(&client())).await;
        let question = agent(&name).ask("Money back").context_json(&Customer("Ada".into())).events();
        let run = question.send().await.unwrap();
        if let RemoteOutcome::Failed(failure) = run.wait().await.unwrap() {
            panic!("{failure}");
        }
        assert_eq!(describe_answer(&answer(&run).await), expected);
        let (mut events, mut read) = (run.events(0), Vec::new());
        while let Some(record) = events.next().await.unwrap() {
            read.extend(describe_event(&record.event));
        }
        assert!(read.last().unwrap() == "done Done.");
        // Agents are asked at once, so their events come in any order.
        read.sort();
        assert_eq!(read, expected_events);
    }
}

/// The calls of `pay` and `halt`, with their keys and attempts.
static EXECUTED: Mutex<Vec<(String, String, u32)>> = Mutex::new(Vec::new());

fn execute(what: &str, attempt: &Attempt) {
    EXECUTED.lock().unwrap().push((what.into(), attempt.key.as_str().into(), attempt.number));
}

fn executed(what: &str) -> Vec<(String, u32)> {
    let executed = EXECUTED.lock().unwrap();
    executed.iter().filter(|(one, ..)| one == what).map(|(_, key, number)| (key.clone(), *number)).collect()
}

#[tool("Pays")]
fn pay(what: String, #[inject] attempt: &Attempt) -> String {
    execute(&what, attempt);
    format!("paid {what}")
}

/// Does not return the first time.
#[tool("Halts")]
async fn halt(what: String, #[inject] attempt: &Attempt) -> String {
    execute(&what, attempt);
    if executed(&what).len() == 1 {
        std::future::pending::<()>().await;
    }
    format!("halted {what}")
}

/// Does not return the first time.
#[tool("Halts", at_most_once)]
async fn halt_once(what: String, #[inject] attempt: &Attempt) -> String {
    halt(what, attempt).await
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_worker_that_dies_in_an_inner_call_repeats_only_that_call() {
    for (case, is_local, halts) in
        [("a", false, "halt"), ("b", true, "halt"), ("c", false, "halt_once"), ("d", true, "halt_once")]
    {
        let (name, address) = (unique("desk"), free_address());
        let (paid, halted, last) = (format!("pay-{case}"), format!("halt-{case}"), format!("last-{case}"));
        let arguments = |what: &str| format!(r#"{{"what": "{what}"}}"#);
        let model = ScriptedModel::new()
            .calls("pay", arguments(&paid))
            .calls(halts, arguments(&halted))
            .calls("pay", arguments(&last))
            .says("All is paid.");
        let inner_model = model.clone();
        let billing = Agent::builder(model).tools(tools![pay, halt, halt_once]).build().unwrap();
        let model = ScriptedModel::new().calls("billing", r#"{"question": "Pay"}"#).says("Done.");
        let desk =
            Agent::builder(model).name(&*name).tools(billing.as_tool("billing", "Bills")).build().unwrap();
        let first = Mortal::start(worker(desk.clone(), is_local), address).await;
        register_at(address).await;
        let run = agent(&name).ask("Pay").send().await.unwrap();
        until("the call", || executed(&halted).len() == 1).await;
        drop(first);
        let _second = Mortal::start(worker(desk, is_local), address).await;
        let answer = within("the answer", answer(&run)).await;
        assert_eq!(answer.text(), "Done.");
        let inner = answer.inner_runs()[0].run();
        let calls = describe_calls("", inner.tool_executions());
        assert_eq!(
            (calls.len(), inner.tool_executions()[0].output().unwrap().to_string()),
            (3, format!("paid {paid}"))
        );
        // No request was repeated either.
        assert_eq!(inner_model.requests().len(), 4);
        assert_eq!((executed(&paid).len(), executed(&last).len()), (1, 1));
        let keys = executed(&halted);
        match halts {
            "halt" => {
                assert_eq!(keys.len(), 2);
                assert_eq!(keys[0], keys[1]);
            }
            _ => {
                assert_eq!(keys.len(), 1);
                assert_eq!(
                    inner.tool_executions()[1].error().unwrap().to_string(),
                    ToolError::outcome_unknown().to_string()
                );
            }
        }
        assert_ne!(executed(&paid)[0].0, executed(&last)[0].0);
    }
}

#[tool("Wires money", needs_approval)]
fn wire(euros: u32) -> String {
    format!("wired {euros}")
}

#[tool("Books a seat")]
async fn book(#[inject] user: &Asker) -> Result<String, AskError> {
    user.ask("Which seat?").choices(["3A", "12C"]).await
}

fn waiting_desk(name: &str) -> Agent {
    let bank = ScriptedModel::new().calls("wire", r#"{"euros": 5}"#).says("Wired.");
    let bank = Agent::builder(bank).tools(tools![wire]).build().unwrap().as_tool("bank", "Wires");
    let calls = [("bank", r#"{"question": "Wire 5"}"#), ("book", "{}")];
    let billing = ScriptedModel::new().calls_all(calls).says("Booked and wired.");
    let billing = Agent::builder(billing).tools(tools![book]).tools(bank).build().unwrap();
    let model = ScriptedModel::new().calls("billing", r#"{"question": "Go"}"#).says("Done.");
    Agent::builder(model).name(name).tools(billing.as_tool("billing", "Bills")).build().unwrap()
}

/// Returns the waits with these paths.
pub(crate) async fn waits_of(run: &RemoteRun, paths: &[&str]) -> Vec<Wait> {
    let all = async {
        loop {
            let mut waits = waits(run).await;
            waits.sort_by(|a, b| a.path.cmp(&b.path));
            if waits.iter().map(|wait| &*wait.path).eq(paths.iter().copied()) {
                break waits;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within("the waits", all).await
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn what_agents_wait_for_is_decided_without_a_process() {
    for is_local in [false, true] {
        let (name, address) = (unique("desk"), free_address());
        let desk = waiting_desk(&name);
        let first = Mortal::start(worker(desk.clone(), is_local), address).await;
        register_at(address).await;
        let run = agent(&name).ask("Go").send().await.unwrap();
        let waits = waits_of(&run, &["call_1_0/call_1_0/call_1_0", "call_1_0/call_1_1"]).await;
        assert!(matches!(&waits[0].reason, WaitReason::Approval(call) if call.name == "wire"));
        assert_eq!(waits[1].question().unwrap().text(), "Which seat?");
        // The arguments are checked by the tool of the inner agent.
        let wrong = Decision::approve_with(r#"{"euros": "many"}"#);
        let error = run.decide(&waits[0].id, wrong).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        drop(first);
        let second = Mortal::start(worker(desk.clone(), is_local), address).await;
        run.decide(&waits[0].id, Decision::approve_with(r#"{"euros": 6}"#).by("ada")).await.unwrap();
        waits_of(&run, &["call_1_0/call_1_1"]).await;
        drop(second);
        let _third = Mortal::start(worker(desk, is_local), address).await;
        run.decide(&waits[1].id, Decision::answer("3A")).await.unwrap();
        let answer = answer(&run).await;
        assert_eq!(answer.text(), "Done.");
        let billing = answer.inner_runs()[0].run();
        assert_eq!(billing.tool_executions()[1].output().unwrap().to_string(), "3A");
        let bank = billing.inner_runs().next().unwrap().run();
        let wired = &bank.tool_executions()[0];
        assert_eq!(wired.output().unwrap().to_string(), "wired 6");
        assert_eq!(wired.decisions()[0].by.as_deref(), Some("ada"));
    }
}

/// Messages wait for the calls of an agent, and what it waits for is decided on its own.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn messages_leave_open_what_agents_wait_for() {
    let name = unique("desk");
    let bank = ScriptedModel::new()
        .calls("wire", r#"{"euros": 5}"#)
        .calls("wire", r#"{"euros": 6}"#)
        .says("Nothing is wired.");
    let bank = Agent::builder(bank).tools(tools![wire]).build().unwrap();
    let model = ScriptedModel::new().calls("bank", r#"{"question": "Wire"}"#).says("Done.");
    let desk = Agent::builder(model).name(&*name).tools(bank.as_tool("bank", "Wires")).build().unwrap();
    let _worker = serve(Worker::new().agent(desk)).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    for (path, message) in [("call_1_0/call_1_0", "Stop"), ("call_1_0/call_2_0", "Stop, I said")] {
        let waits = waits_of(&run, &[path]).await;
        run.say(message).await.unwrap();
        run.decide(&waits[0].id, Decision::deny("no")).await.unwrap();
    }
    let answer = answer(&run).await;
    let users = answer.new_messages().iter().filter(|one| matches!(one, tool_core::Message::User(_)));
    assert_eq!(users.map(|one| one.text().into_owned()).collect::<Vec<_>>(), ["Go", "Stop", "Stop, I said"]);
    let inner = answer.inner_runs()[0].run();
    assert!(inner.tool_executions().iter().all(|one| one.decisions().len() == 1 && one.error().is_some()));
}

static UNPAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn unpaid(prefix: &str) -> Vec<String> {
    UNPAID.lock().unwrap().iter().filter(|one| one.starts_with(prefix)).cloned().collect()
}

#[tool("Pays", undo = "unspend")]
fn spend(what: String) -> String {
    format!("paid {what}")
}

#[tool("Takes a payment back")]
fn unspend(what: String, #[inject] undone: &CallToUndo) -> String {
    let output = undone.output.as_ref().map(ToString::to_string);
    UNPAID.lock().unwrap().push(format!("{what}: {}", output.as_deref().unwrap_or("unknown")));
    "taken back".into()
}

static HANGING: Notify = Notify::const_new();

#[tool("Never returns", undo = "unspend")]
async fn hang(what: String) -> String {
    HANGING.notify_one();
    std::future::pending::<()>().await;
    what
}

#[tool("Fails for good")]
fn break_down() -> Result<(), ToolError> {
    Err(ToolError::fatal("the key was revoked"))
}

fn spender(script: ScriptedModel) -> AgentBuilder {
    Agent::builder(script).tools(tools![spend, hang, break_down]).undo_tools(tools![unspend])
}

fn spends(what: &str) -> String {
    format!(r#"{{"what": "{what}"}}"#)
}

/// The calls of the whole tree are undone, the last one first: calls of an agent that has answered, calls around it, and calls of an
/// agent in the middle of its work.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn cancelling_undoes_the_calls_of_the_tree() {
    let name = unique("desk");
    let bank = ScriptedModel::new().calls("spend", spends("c2")).says("Paid.");
    let bank = spender(bank).build().unwrap().as_tool("bank", "Pays");
    let billing = ScriptedModel::new().calls("bank", r#"{"question": "Pay"}"#).says("Paid.");
    let billing = spender(billing).tools(bank).build().unwrap().as_tool("billing", "Bills");
    let travel = ScriptedModel::new().calls("spend", spends("c4")).calls("hang", spends("c5"));
    let travel = spender(travel).build().unwrap().as_tool("travel", "Books");
    let model = ScriptedModel::new()
        .calls("spend", spends("c1"))
        .calls("billing", r#"{"question": "Pay"}"#)
        .calls("spend", spends("c3"))
        .calls("travel", r#"{"question": "Book"}"#);
    let desk = spender(model).name(&*name).tools(billing).tools(travel).build().unwrap();
    let _worker = serve(Worker::new().agent(desk)).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    HANGING.notified().await;
    run.cancel().await.unwrap();
    let failure = within("the end", failure(&run)).await;
    assert!(matches!(failure.reason, Some(StopReason::Cancelled)), "{failure:?}");
    assert_eq!(unpaid("c"), ["c5: unknown", "c4: paid c4", "c3: paid c3", "c2: paid c2", "c1: paid c1"]);
    assert_eq!(failure.undo_executions.len(), 4);
    assert_eq!(failure.undo_executions[0].output().unwrap().to_string(), "calls undone: 2");
}

/// An agent that fails undoes its own calls; the outer model reads it. A failure of the outer run undoes the calls of all.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_failure_undoes_the_calls_of_agents() {
    for (case, is_local) in [("e", false), ("f", true)] {
        let name = unique("desk");
        let what = |number: u32| format!("{case}{number}");
        let failing = ScriptedModel::new().calls("spend", spends(&what(1))).calls("break_down", "{}");
        let failing = spender(failing).build().unwrap().as_tool("failing", "Fails");
        let billing = ScriptedModel::new().calls("spend", spends(&what(2))).says("Paid.");
        let billing = spender(billing).build().unwrap().as_tool("billing", "Bills");
        let model = ScriptedModel::new()
            .calls("failing", r#"{"question": "Pay"}"#)
            .calls("billing", r#"{"question": "Pay"}"#)
            .calls("break_down", "{}");
        let desk = spender(model).name(&*name).tools(failing).tools(billing).build().unwrap();
        let _worker = serve(worker(desk, is_local)).await;
        let failure = failure(&agent(&name).ask("Go").send().await.unwrap()).await;
        assert!(matches!(failure.reason, Some(StopReason::ToolFailed { .. })), "{failure:?}");
        let text = failure.tool_executions[0].error().unwrap().to_string();
        assert_eq!(text, "the agent gave no answer: one of its tools failed");
        let expected = [1, 2].map(|number| format!("{case}{number}: paid {case}{number}"));
        assert_eq!(unpaid(case), expected);
    }
}

/// A call whose agent has answered is attempted again, because the answer cannot be used.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn each_run_of_a_retried_call_is_undone() {
    for (case, is_local) in [("sent", false), ("local", true)] {
        let name = unique("desk");
        let what = |number: u32| format!("{case}{number}");
        let cut_off = ChatResponse::new(AssistantMessage::text("")).with_finish_reason(FinishReason::Length);
        let billing = ScriptedModel::new().calls("spend", spends(&what(1))).replies(cut_off);
        let billing = spender(billing.calls("spend", spends(&what(2))).says("Paid.")).build().unwrap();
        let mut policy = ToolPolicy::default();
        policy.attempts = 2;
        let billing = billing.as_tool("billing", "Bills").policy(policy);
        let model = ScriptedModel::new().calls("billing", r#"{"question": "Pay"}"#).calls("break_down", "{}");
        let desk = spender(model).name(&*name).tools(billing).build().unwrap();
        let _worker = serve(worker(desk, is_local)).await;
        let failure = failure(&agent(&name).ask("Go").send().await.unwrap()).await;
        assert!(matches!(failure.reason, Some(StopReason::ToolFailed { .. })), "{failure:?}");
        let expected = [2, 1].map(|number| format!("{case}{number}: paid {case}{number}"));
        assert_eq!(unpaid(case), expected);
        let ids: Vec<_> = failure.undo_executions.iter().map(|one| &*one.call().id).collect();
        assert_eq!(ids, ["undo_call_1_0", "undo_undo_call_1_0"]);
    }
}

#[tool("Works")]
fn work(number: u32) -> u32 {
    number
}

/// Two calls of the agent and its own call: three of the tree.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn limits_hold_for_the_whole_tree() {
    let desk = |name: &str, own: Option<RunLimits>, max_calls: u32| {
        let calls = [("work", r#"{"number": 1}"#), ("work", r#"{"number": 2}"#)];
        let inner = Agent::builder(ScriptedModel::new().calls_all(calls).says("Worked.")).tools(tools![work]);
        let inner = inner.build().unwrap().as_tool("inner", "Works");
        let inner = own.into_iter().fold(inner, |inner, own| inner.limits(|_| own).own_limits());
        let model = ScriptedModel::new().calls("inner", r#"{"question": "Work"}"#).says("Done.");
        Agent::builder(model).name(name).tools(inner).limits(|l| l.max_calls(max_calls)).build().unwrap()
    };
    for (own, max_calls, is_enough) in [(None, 3, true), (None, 2, false), (Some(RunLimits::new()), 1, true)]
    {
        let name = unique("desk");
        let _worker = serve(Worker::new().agent(desk(&name, own, max_calls))).await;
        let outcome = agent(&name).ask("Go").send().await.unwrap().wait().await.unwrap();
        match outcome {
            RemoteOutcome::Answer(answer) => assert!(is_enough, "{answer:?}"),
            RemoteOutcome::Failed(failure) => {
                assert!(!is_enough, "{failure:?}");
                assert!(matches!(failure.reason, Some(StopReason::MaxCalls(2))), "{failure:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tool("Meets the others")]
async fn meet(#[inject] all: &Meeting) {
    all.0.wait().await;
}

#[derive(Clone)]
struct Meeting(Arc<tokio::sync::Barrier>);

/// Each waits for the others, so none ends before all have started.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn calls_of_several_agents_run_at_the_same_time() {
    for is_local in [false, true] {
        let name = unique("desk");
        let names = ["first", "second", "third"];
        let inner = || {
            let model = ScriptedModel::new().calls("meet", "{}").says("Met.");
            Agent::builder(model).tools(tools![meet])
        };
        let model = ScriptedModel::new().calls_all(names.map(|name| (name, r#"{"question": "Meet"}"#)));
        let meeting = Meeting(Arc::new(tokio::sync::Barrier::new(names.len())));
        let desk = Agent::builder(model.says("Done.")).name(&*name);
        let desk = names.into_iter().fold(desk, |desk, name| {
            let inner = inner().context(meeting.clone()).build().unwrap();
            desk.tools(inner.as_tool(name, "Meets"))
        });
        let _worker = serve(worker(desk.build().unwrap(), is_local)).await;
        let run = agent(&name).ask("Meet").send().await.unwrap();
        let outcome = within("the end", run.wait()).await.unwrap();
        assert!(matches!(outcome, RemoteOutcome::Answer(_)), "{outcome:?}");
    }
}

#[tool("Sleeps")]
async fn sleep() {
    std::future::pending::<()>().await;
}

/// The time limit of the agent ends its run, and the outer run's ends all.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn time_is_limited_inside_and_around() {
    for is_local in [false, true] {
        for is_inside in [false, true] {
            let name = unique("desk");
            let short = RunLimits::new().max_time(Duration::from_millis(300));
            let inner = Agent::builder(ScriptedModel::new().calls("sleep", "{}")).tools(tools![sleep]);
            let inner = inner.build().unwrap().as_tool("inner", "Sleeps");
            let model = ScriptedModel::new().calls("inner", r#"{"question": "Sleep"}"#).says("Done.");
            let desk = Agent::builder(model).name(&*name);
            let desk = match is_inside {
                true => desk.tools(inner.limits(|_| short)),
                false => desk.tools(inner).limits(|_| short),
            };
            let _worker = serve(worker(desk.build().unwrap(), is_local)).await;
            let run = agent(&name).ask("Go").send().await.unwrap();
            match within("the end", run.wait()).await.unwrap() {
                RemoteOutcome::Answer(answer) if is_inside => {
                    let text = answer.tool_executions()[0].error().unwrap().to_string();
                    assert_eq!(text, "the agent gave no answer: it reached one of its limits");
                }
                RemoteOutcome::Failed(failure) if !is_inside => {
                    assert!(matches!(failure.reason, Some(StopReason::MaxTime(_))), "{failure:?}");
                }
                other => panic!("{is_inside}: {other:?}"),
            }
        }
    }
}

static RUNNING: AtomicU32 = AtomicU32::new(0);

async fn run_alone() -> &'static str {
    let others = RUNNING.fetch_add(1, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(50)).await;
    RUNNING.fetch_sub(1, Ordering::SeqCst);
    if others == 0 { "alone" } else { "beside others" }
}

#[tool("Runs alone", exclusive)]
async fn alone() -> &'static str {
    run_alone().await
}

#[tool("Runs beside others")]
async fn beside() -> &'static str {
    run_alone().await
}

/// An exclusive call of an agent runs alone in the tree, and the calls of an exclusive agent run beside no others.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn exclusive_calls_run_alone_in_the_tree() {
    for is_agent_exclusive in [false, true] {
        let name = unique("desk");
        let inner = |tool: &'static str| {
            let model = ScriptedModel::new().calls(tool, "{}").says("Done.");
            Agent::builder(model).tools(tools![alone, beside]).build().unwrap()
        };
        let a = match is_agent_exclusive {
            true => inner("beside").as_tool("a", "A").policy(ToolPolicy::default().with_exclusive(true)),
            false => inner("alone").as_tool("a", "A"),
        };
        let calls = [("a", r#"{"question": "?"}"#), ("b", r#"{"question": "?"}"#), ("beside", "{}")];
        let model = ScriptedModel::new().calls_all(calls).says("Done.");
        let desk = Agent::builder(model).name(&*name).tools(tools![beside]).tools(a);
        let desk = desk.tools(inner("beside").as_tool("b", "B")).build().unwrap();
        let _worker = serve(Worker::new().agent(desk)).await;
        let answer = answer(&agent(&name).ask("Go").send().await.unwrap()).await;
        let a = answer.inner_runs().iter().find(|inner| inner.agent() == "a").unwrap();
        assert_eq!(a.run().tool_executions()[0].output().unwrap().to_string(), "alone");
    }
}

/// The requests to the models of the agents `a` and `b`, and the calls that began.
#[derive(Clone, Default)]
struct Overlapping(Arc<[AtomicU32; 2]>, Arc<Mutex<Vec<&'static str>>>);

const OVERLAPPING_TURNS: u32 = 6;

/// Calls `overlap_a` or `overlap_b` in each turn but the last.
struct Overlaps(usize, Overlapping);

impl ChatModel for Overlaps {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let Self(agent, Overlapping(requests, _)) = self;
        let call = ToolCall::new("", ["overlap_a", "overlap_b"][*agent], "{}");
        let reply = match requests[*agent].fetch_add(1, Ordering::SeqCst) < OVERLAPPING_TURNS {
            true => AssistantMessage::default().with_tool_calls([call]),
            false => AssistantMessage::text("Done."),
        };
        Box::pin(async move { Ok(ChatResponse::new(reply)) })
    }
}

async fn overlap(Overlapping(requests, began): &Overlapping, agent: usize, name: &'static str) {
    began.lock().unwrap().push(name);
    let turn = requests[agent].load(Ordering::SeqCst);
    // The other agent begins its call of this turn, or of the next one, before this one ends.
    while requests[1 - agent].load(Ordering::SeqCst) < turn + agent as u32 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tool]
async fn overlap_a(#[inject] calls: &Overlapping) {
    overlap(calls, 0, "a").await;
}

#[tool]
async fn overlap_b(#[inject] calls: &Overlapping) {
    overlap(calls, 1, "b").await;
}

#[tool(exclusive)]
fn lock(#[inject] calls: &Overlapping) {
    calls.1.lock().unwrap().push("lock");
}

/// Calls of others do not overlap for as long as there are any.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn an_exclusive_call_is_not_held_back_for_ever() {
    let (name, calls) = (unique("desk"), Overlapping::default());
    let overlaps = |agent| {
        let agent = Agent::builder(Overlaps(agent, calls.clone())).limits(|l| l.max_repeated_calls(20));
        agent.tools(tools![overlap_a, overlap_b]).context(calls.clone()).build().unwrap()
    };
    let locks = Agent::builder(ScriptedModel::new().calls("lock", "{}").says("Done."));
    let locks = locks.tools(tools![lock]).context(calls.clone());
    let asked = ["a", "b", "c"].map(|agent| (agent, r#"{"question": "?"}"#));
    let desk = Agent::builder(ScriptedModel::new().calls_all(asked).says("Done.")).name(&*name);
    let desk = desk.tools(overlaps(0).as_tool("a", "A")).tools(overlaps(1).as_tool("b", "B"));
    let desk = desk.tools(locks.build().unwrap().as_tool("c", "C"));
    let _worker = serve(Worker::new().agent(desk.build().unwrap())).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    within("the answer", answer(&run)).await;
    let began = calls.1.lock().unwrap();
    let at = began.iter().position(|one| *one == "lock").unwrap();
    assert!(at <= 3, "{began:?}");
}

/// Answers once the other agent's model is asked as well.
struct Meets(Arc<Barrier>);

impl ChatModel for Meets {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move {
            self.0.wait().await;
            Ok(ChatResponse::new(AssistantMessage::text("I am here.")))
        })
    }
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn the_models_of_agents_are_asked_at_once() {
    let (name, barrier) = (unique("desk"), Arc::new(Barrier::new(2)));
    let inner = || Agent::builder(Meets(Arc::clone(&barrier))).build().unwrap();
    let calls = [("a", r#"{"question": "?"}"#), ("b", r#"{"question": "?"}"#)];
    let model = ScriptedModel::new().calls_all(calls).says("Done.");
    let desk = Agent::builder(model).name(&*name).tools(inner().as_tool("a", "A"));
    let desk = desk.tools(inner().as_tool("b", "B")).build().unwrap();
    let _worker = serve(Worker::new().agent(desk)).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    let answer = within("the answer", answer(&run)).await;
    assert_eq!(answer.text(), "Done.");
}

/// Fails the first time.
struct Recovers(Arc<AtomicU32>);

impl ChatModel for Recovers {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let is_first = self.0.fetch_add(1, Ordering::SeqCst) == 0;
        Box::pin(async move {
            match is_first {
                true => Err(ModelError::new("busy")),
                false => Ok(ChatResponse::new(AssistantMessage::text("I am here."))),
            }
        })
    }
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_model_that_fails_is_asked_again_and_not_those_beside_it() {
    let (name, failing) = (unique("desk"), Arc::new(AtomicU32::new(0)));
    let well = ScriptedModel::new().says("I am here.");
    let a = Agent::builder(Recovers(Arc::clone(&failing))).build().unwrap();
    let b = Agent::builder(well.clone()).build().unwrap();
    let calls = [("a", r#"{"question": "?"}"#), ("b", r#"{"question": "?"}"#)];
    let model = ScriptedModel::new().calls_all(calls).says("Done.");
    let desk = Agent::builder(model).name(&*name).tools(a.as_tool("a", "A")).tools(b.as_tool("b", "B"));
    let _worker = serve(Worker::new().agent(desk.build().unwrap())).await;
    let answer = answer(&agent(&name).ask("Go").send().await.unwrap()).await;
    let outputs = answer.tool_executions().iter().map(|one| one.output().unwrap().to_string());
    assert_eq!(outputs.collect::<Vec<_>>(), ["I am here.", "I am here."]);
    assert_eq!((failing.load(Ordering::SeqCst), well.requests().len()), (2, 1));
}
