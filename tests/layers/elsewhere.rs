//! Runs that another process continues, with what layers judge there.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tests::support::ways::restored;
use tool_core::layer::{CallVerdict, OutputVerdict, guard, rewrite};
use tool_core::run::{Decision, Run, Step, WaitReason};
use tool_core::signatures::ClosureLayer;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, Event, RunErrorKind, ToolCall, ToolError, tool, tools};

struct IsAdmin(bool);

#[tool("Searches")]
fn search(query: String) -> String {
    query
}

#[tool("Deletes all")]
fn delete(path: String) -> String {
    format!("deleted {path}")
}

/// Offers `delete` to admins.
fn for_admins() -> ClosureLayer {
    guard::offer_with_context(|tool, at| {
        tool.name() != "delete" || at.context.get().is_some_and(|IsAdmin(is_admin)| *is_admin)
    })
}

/// Fails at first.
fn failing_once() -> ClosureLayer {
    let times = AtomicUsize::new(0);
    guard::call(move |_: &ToolCall| match times.fetch_add(1, Ordering::SeqCst) {
        0 => Err("it is down"),
        _ => Ok(CallVerdict::Pass),
    })
}

/// A model that calls an offered tool, and one that is not.
fn two_calls() -> ScriptedModel {
    let calls = [("search", r#"{"query": "a"}"#), ("delete", r#"{"path": "a"}"#)];
    ScriptedModel::new().calls_all(calls).says("Done.")
}

/// The call of a tool that was left out is refused in the state in which another layer has failed, too.
#[tokio::test]
async fn a_tool_that_was_left_out_is_refused_before_another_layer_fails() {
    let agent = Agent::builder(two_calls()).tools(tools![search, delete]);
    let agent = agent.layer(for_admins()).layer(failing_once()).build().unwrap();
    let error = agent.ask("Go").context(IsAdmin(false)).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Layer { .. }), "{error}");
    let mut run = restored(error.into_run());
    let refused = run.clone().request_call("call_1_1").unwrap_err();
    assert_eq!(refused.to_string(), "the run does not expect this: the call already has a result");
    assert!(run.request_call("call_1_0").is_ok());
    let answer = agent.resume(restored(run)).context(IsAdmin(true)).await.unwrap();
    let expected = "there is no tool `delete`; the tools are `search`";
    assert_eq!([answer.new_messages()[2].text(), answer.new_messages()[3].text()], ["a", expected]);
}

/// The error of such a call is judged as an output, once, and nobody reads it before.
#[tokio::test]
async fn the_error_of_a_tool_that_was_left_out_is_judged() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&seen);
    let hides = guard::output(move |execution| match execution.error() {
        Some(error) => {
            log.lock().unwrap().push(error.to_string());
            OutputVerdict::fail(ToolError::failed("hidden"))
        }
        None => OutputVerdict::Pass,
    });
    let agent = Agent::builder(two_calls()).tools(tools![search, delete]).layer(for_admins()).layer(hides);
    let mut events = agent.build().unwrap().ask("Go").stream();
    let mut finished = Vec::new();
    while let Some(event) = events.next().await {
        if let Event::CallFinished(execution) = event.unwrap() {
            finished.push(execution.outcome().map_or_else(ToString::to_string, ToString::to_string));
        }
    }
    finished.sort();
    assert_eq!(finished, ["a", "hidden"]);
    assert_eq!(*seen.lock().unwrap(), ["there is no tool `delete`; the tools are `search`"]);
}

#[tool("Deletes all", at_most_once)]
fn delete_once(path: String) -> String {
    format!("deleted {path}")
}

#[tool("Pays", needs_approval)]
fn pay(payee: String) -> String {
    format!("paid {payee}")
}

/// Lets the first call pass, and no other.
fn once(times: &Arc<AtomicUsize>, tool: &'static str) -> ClosureLayer {
    let times = Arc::clone(times);
    guard::call(move |call: &ToolCall| match call.name == tool {
        true if times.fetch_add(1, Ordering::SeqCst) > 0 => CallVerdict::deny("not at night"),
        _ => CallVerdict::Pass,
    })
}

#[tokio::test]
async fn a_call_that_was_started_is_judged_again() {
    let judged_again = "the call was denied: not at night";
    let unknown = "the outcome of the call is unknown: it was interrupted and may or may not have taken effect; \
                   it is not retried, so find out before you continue";
    for (name, times, expected) in [("delete", 2, judged_again), ("delete_once", 1, unknown)] {
        let judged = Arc::default();
        let model = ScriptedModel::new().calls(name, r#"{"path": "a"}"#).says("Done.");
        let agent = Agent::builder(model).tools(tools![delete, delete_once]).layer(once(&judged, name));
        let agent = agent.build().unwrap();
        let mut driver = agent.ask("Go").start();
        driver.advance().await.unwrap();
        let Step::CallTools(calls) = driver.next().await.unwrap() else { panic!("it calls") };
        driver.begin_call(&calls[0]).await.unwrap();
        let run = restored(driver.into_run());
        let answer = agent.resume(run).await.unwrap();
        assert_eq!(answer.new_messages()[2].text(), expected, "{name}");
        assert_eq!(judged.load(Ordering::SeqCst), times, "{name}");
    }
}

/// The run of the agent has waited, and the pass is old.
#[tokio::test]
async fn a_call_of_an_agent_that_waited_is_judged_again() {
    let model = ScriptedModel::new().calls("pay", r#"{"payee": "Ada"}"#).says("Paid.");
    let inner = Agent::builder(model).tools(tools![pay]).build().unwrap();
    let judged = Arc::default();
    let model = ScriptedModel::new().calls("helper", r#"{"question": "go"}"#).says("Done.");
    let outer = Agent::builder(model).tools(inner.as_tool("helper", "Helps")).layer(once(&judged, "helper"));
    let outer = outer.build().unwrap();
    let mut run = outer.ask("Go").await.unwrap_err().into_run();
    let wait = run.waits().remove(0).id;
    run.resolve(&wait, Decision::approve()).unwrap();
    let answer = outer.resume(restored(run)).await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "the call was denied: not at night");
    assert_eq!(answer.inner_runs()[0].run().tool_executions().len(), 0);
    assert_eq!(judged.load(Ordering::SeqCst), 2);
}

/// Appends to the payee, so that it shows how often it was asked.
fn appending(letter: char) -> ClosureLayer {
    let rewrite = move |call: &ToolCall| Some(call.arguments.replace(r#""}"#, &format!(r#"{letter}"}}"#)));
    rewrite::call(rewrite).named(format!("append_{letter}"))
}

/// A layer that is deployed while a run waits rewrites the call, and the approval of another call is void.
#[tokio::test]
async fn a_layer_that_was_added_meanwhile_rewrites_what_waits() {
    let model = ScriptedModel::new().calls("pay", r#"{"payee":"a"}"#).says("Done.");
    let agent = || Agent::builder(model.clone()).tools(tools![pay]).layer(appending('b'));
    let old = agent().build().unwrap();
    let new = agent().layer(appending('c')).build().unwrap();
    let asked = |run: &Run| match &run.waits()[0].reason {
        WaitReason::Approval(call) => call.arguments.clone(),
        other => panic!("{other:?}"),
    };
    let approve = |mut run: Run| {
        let wait = run.waits().remove(0).id;
        run.resolve(&wait, Decision::approve()).unwrap();
        restored(run)
    };
    let run = old.ask("Go").await.unwrap_err().into_run();
    assert_eq!(asked(&run), r#"{"payee":"ab"}"#);
    let run = new.resume(approve(run)).await.unwrap_err().into_run();
    assert_eq!(asked(&run), r#"{"payee":"abc"}"#);
    let answer = new.resume(approve(run)).await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "paid abc");
    assert_eq!(answer.tool_executions()[0].original_arguments(), r#"{"payee":"a"}"#);
}
