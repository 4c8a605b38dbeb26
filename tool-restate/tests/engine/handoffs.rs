//! Runs that one agent hands off to another, and tools that are searched for.

use std::sync::Mutex;

use tool_core::agent::ToolSearch;
use tool_core::layer::guard;
use tool_core::run::{Decision, StopReason};
use tool_core::testing::ScriptedModel;
use tool_core::tool::ToolErrorKind;
use tool_core::{Agent, Event, ToolError, tool, tools};
use tool_restate::{ErrorKind, RemoteOutcome, Worker};

use crate::agents::{describe_answer, describe_event, waits_of};
use crate::support::{Mortal, agent, answer, failure, free_address, register_at, serve, unique};

#[tool("Looks an order up")]
fn look_up(order: u32) -> String {
    format!("order {order} is paid")
}

#[tool("Refunds an order")]
fn refund(order: u32) -> String {
    format!("refunded {order}")
}

#[tool("Wires money", needs_approval)]
fn wire(euros: u32) -> String {
    format!("wired {euros}")
}

/// The desk looks an order up and hands off to billing, which asks an agent that hands off itself, and hands off to the bank.
fn desk(name: &str) -> Agent {
    let model = ScriptedModel::new().calls("wire", r#"{"euros": 5}"#).says("Wired.");
    let bank = Agent::builder(model).instructions("You are the bank.").tools(tools![wire]).build().unwrap();
    let model = ScriptedModel::new().calls("refund", r#"{"order": 7}"#).says("Refunded.");
    let refunds = Agent::builder(model).tools(tools![refund]).build().unwrap();
    let model = ScriptedModel::new().calls("refunds", "{}");
    let helper = Agent::builder(model).handoff_to("refunds", "Refunds", &refunds).build().unwrap();
    let model = ScriptedModel::new().calls("helper", r#"{"question": "Refund 7"}"#).calls("bank", "{}");
    let billing = Agent::builder(model).instructions("You do billing.");
    let billing = billing.tools(helper.as_tool("helper", "Helps")).handoff_to("bank", "Wires", &bank);
    let billing = billing.build().unwrap();
    let model = ScriptedModel::new().calls("look_up", r#"{"order": 7}"#).calls("billing", "{}");
    let desk = Agent::builder(model).name(name).instructions("You are the first contact.");
    desk.tools(tools![look_up]).handoff_to("billing", "Bills", &billing).build().unwrap()
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_run_is_handed_off_as_in_one_process() {
    let name = unique("desk");
    let here = desk(&name);
    let mut waiting = here.ask("Money back").await.unwrap_err().into_run();
    let wait = waiting.waits().remove(0);
    waiting.resolve(&wait.id, Decision::approve()).unwrap();
    let expected = describe_answer(&here.resume(waiting).await.unwrap());
    for is_local in [false, true] {
        let (name, address) = (unique("desk"), free_address());
        let desk = desk(&name);
        let worker = || {
            let worker = Worker::new().agent(desk.clone());
            if is_local { worker.local_calls() } else { worker }
        };
        let first = Mortal::start(worker(), address).await;
        register_at(address).await;
        let run = agent(&name).ask("Money back").events().send().await.unwrap();
        let wait = waits_of(&run, &[&wait.path]).await.remove(0);
        // The tool is one of the agent that the run was handed off to.
        let wrong = Decision::approve_with(r#"{"euros": "many"}"#);
        assert_eq!(run.decide(&wait.id, wrong).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        drop(first);
        let _second = Mortal::start(worker(), address).await;
        run.decide(&wait.id, Decision::approve()).await.unwrap();
        let answer = answer(&run).await;
        assert_eq!(describe_answer(&answer), expected);
        let handoffs = answer.handoffs().iter().map(|handoff| handoff.agent().to_owned());
        assert_eq!(handoffs.collect::<Vec<_>>(), ["billing", "bank"]);
        let (mut events, mut handed_off) = (run.events(0), Vec::new());
        while let Some(record) = events.next().await.unwrap() {
            match &record.event {
                Event::Waiting(_) => {}
                Event::HandedOff { agent, .. } => handed_off.push(agent.clone()),
                event => drop(describe_event(event)),
            }
        }
        assert_eq!(handed_off, ["billing", "bank"]);
    }
}

static UNDONE: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[tool("Books a room", undo = "cancel")]
fn book(room: String) -> String {
    room
}

/// Each agent has an undo tool of this name.
#[tool("Cancels a booking of the desk")]
fn cancel(room: String) {
    UNDONE.lock().unwrap().push(format!("desk {room}"));
}

mod other {
    use super::{UNDONE, tool};

    #[tool("Cancels a booking of the travel agency", at_most_once)]
    pub(super) fn cancel(room: String) {
        UNDONE.lock().unwrap().push(format!("travel {room}"));
    }
}

#[tool("Fails for good")]
fn break_down() -> Result<(), ToolError> {
    Err(ToolError::fatal("the key was revoked"))
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn calls_are_undone_by_the_agent_that_executed_them() {
    for is_local in [false, true] {
        let name = unique("desk");
        UNDONE.lock().unwrap().clear();
        let model = ScriptedModel::new().calls("book", r#"{"room": "2"}"#).calls("break_down", "{}");
        let travel = Agent::builder(model).tools(tools![book, break_down]).undo_tools(tools![other::cancel]);
        let model = ScriptedModel::new().calls("book", r#"{"room": "1"}"#).calls("travel", "{}");
        let desk = Agent::builder(model).name(&*name).tools(tools![book]).undo_tools(tools![cancel]);
        let desk = desk.handoff_to("travel", "Books", &travel.build().unwrap()).build().unwrap();
        let worker = Worker::new().agent(desk);
        let _worker = serve(if is_local { worker.local_calls() } else { worker }).await;
        let failure = failure(&agent(&name).ask("Book").send().await.unwrap()).await;
        assert!(matches!(failure.reason, Some(StopReason::ToolFailed { .. })), "{failure:?}");
        assert_eq!(*UNDONE.lock().unwrap(), ["travel 2", "desk 1"]);
    }
}

/// The layers of both agents hold after the handoff, the other agent's not before.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn layers_of_both_agents_hold_after_a_handoff() {
    let name = unique("desk");
    let deny = |what: &'static str| {
        guard::call(move |call: &tool_core::ToolCall| match call.name == what {
            true => tool_core::layer::CallVerdict::deny(format!("no {what}")),
            false => tool_core::layer::CallVerdict::Pass,
        })
    };
    let calls = [("look_up", r#"{"order": 1}"#), ("refund", r#"{"order": 1}"#)];
    let model = ScriptedModel::new().calls_all(calls).says("Done.");
    let billing =
        Agent::builder(model).tools(tools![look_up, refund]).layer(deny("look_up")).build().unwrap();
    let model = ScriptedModel::new().calls_all(calls).calls("billing", "{}");
    let desk = Agent::builder(model).name(&*name).tools(tools![look_up, refund]).layer(deny("refund"));
    let desk = desk.handoff_to("billing", "Bills", &billing).build().unwrap();
    let _worker = serve(Worker::new().agent(desk)).await;
    let run = agent(&name).ask("Go").send().await.unwrap();
    let RemoteOutcome::Answer(answer) = run.wait().await.unwrap() else { panic!("no answer") };
    let denied = answer.tool_executions().iter().map(|one| one.error().map(ToolError::kind));
    let (none, denied_kind) = (None, Some(ToolErrorKind::Denied));
    assert_eq!(denied.collect::<Vec<_>>(), [none, denied_kind, none, denied_kind, denied_kind]);
}

/// The search is a recorded step, and what it finds is offered by any worker.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn tools_are_found_as_in_one_process() {
    for call_through in [false, true] {
        let search = || {
            let search = ToolSearch::bm25().min_tools(0);
            if call_through { search.call_through() } else { search }
        };
        let (called, arguments) = match call_through {
            true => ("call_tool", r#"{"name": "wire", "arguments": {"euros": 5}}"#),
            false => ("wire", r#"{"euros": 5}"#),
        };
        let model = || {
            let calls = [("search_tools", r#"{"query": "wires money"}"#), ("look_up", r#"{"order": 1}"#)];
            ScriptedModel::new().calls_all(calls).calls(called, arguments).says("Wired.")
        };
        let clerk = |name: &str, model: &ScriptedModel| {
            let clerk = Agent::builder(model.clone()).name(name).tools(tools![look_up, refund, wire]);
            clerk.tool_search(search().always_offer(["look_up"])).build().unwrap()
        };
        let here = clerk("here", &model());
        let mut waiting = here.ask("Wire 5").await.unwrap_err().into_run();
        let wait = waiting.waits().remove(0);
        waiting.resolve(&wait.id, Decision::approve()).unwrap();
        let expected = describe_answer(&here.resume(waiting).await.unwrap());
        for is_local in [false, true] {
            let (name, address, model) = (unique("clerk"), free_address(), model());
            let worker = || {
                let worker = Worker::new().agent(clerk(&name, &model));
                if is_local { worker.local_calls() } else { worker }
            };
            let first = Mortal::start(worker(), address).await;
            register_at(address).await;
            let run = agent(&name).ask("Wire 5").send().await.unwrap();
            let wait = waits_of(&run, &["call_2_0"]).await.remove(0);
            drop(first);
            let _second = Mortal::start(worker(), address).await;
            run.decide(&wait.id, Decision::approve()).await.unwrap();
            assert_eq!(describe_answer(&answer(&run).await), expected);
        }
    }
}
