//! Names of calls: whatever a model writes, every rule sees the name of the tool that is executed.

use std::sync::{Arc, Mutex};

use tests::support::ways::alike;
use tool_core::agent::{AgentBuilder, ToolSearch, on_approval};
use tool_core::layer::{OutputVerdict, guard, rewrite};
use tool_core::model::{AssistantMessage, ChatResponse};
use tool_core::run::{Decision, Run, StopReason};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, Event, FunctionTool, Message, RunErrorKind, Tool, ToolCall, ToolSet, tool, tools};

#[tool("Deletes a file", undo = "restore")]
fn delete(path: String) -> Result<(), String> {
    Err(format!("{path} is locked"))
}

#[tool("Restores a file")]
fn restore(path: String) {
    let _ = path;
}

const ARGUMENTS: &str = r#"{"path":"a"}"#;

/// Calls of `delete`, as models write them.
fn garbled() -> Vec<(String, String)> {
    let names =
        ["delete", "functions.delete", "delete\" />", "functions.delete(", "delete<|channel|>commentary"];
    let parallel = |name: &str, arguments: &str| {
        format!(r#"{{"tool_uses": [{{"recipient_name": {name:?}, "parameters": {arguments}}}]}}"#)
    };
    let mut calls = Vec::new();
    for name in names {
        calls.push((name.to_owned(), ARGUMENTS.to_owned()));
        for wrapper in
            ["multi_tool_use.parallel", "functions.multi_tool_use.parallel", "multi_tool_use.parallel\" />"]
        {
            calls.push((wrapper.to_owned(), parallel(name, ARGUMENTS)));
        }
    }
    calls
}

/// The same calls, as models write them that call tools through `call_tool`.
fn through_search() -> Vec<(String, String)> {
    let mut calls = Vec::new();
    for (name, arguments) in garbled() {
        let through = format!(r#"{{"name": {name:?}, "arguments": {arguments}}}"#);
        for call_tool in ["call_tool", "functions.call_tool", "call_tool\" />"] {
            calls.push((call_tool.to_owned(), through.clone()));
        }
        if !name.contains("parallel") {
            let uses =
                format!(r#"{{"tool_uses": [{{"recipient_name": "call_tool", "parameters": {through}}}]}}"#);
            calls.push(("multi_tool_use.parallel".to_owned(), uses));
        }
    }
    calls
}

type Seen = Arc<Mutex<Vec<(&'static str, String)>>>;

/// An agent whose rules record the names that they see.
fn watched(script: ScriptedModel, seen: &Seen) -> AgentBuilder {
    let see = |rule: &'static str| {
        let seen = Arc::clone(seen);
        move |name: &str| seen.lock().unwrap().push((rule, name.to_owned()))
    };
    let (rewrites, approval, approver, error) =
        (see("rewrite::call"), see("needs_approval"), see("approver"), see("output"));
    let (ready, started, finished, reply) = (see("ready"), see("started"), see("finished"), see("reply"));
    let announced = see("announced");
    Agent::builder(script)
        .tools(tools![delete])
        .undo_tools(tools![restore])
        .layer(rewrite::call(move |call| {
            rewrites(&call.name);
            None
        }))
        .layer(guard::needs_approval(move |call| {
            approval(&call.name);
            true
        }))
        .decider(on_approval(move |call| {
            approver(&call.name);
            Decision::approve()
        }))
        .layer(guard::output(move |execution| {
            error(&execution.call().name);
            OutputVerdict::Pass
        }))
        .on_event(move |event| match event {
            Event::CallAnnounced { name, .. } if !name.contains("parallel") => announced(name),
            Event::CallReady { call, .. } => ready(&call.name),
            Event::CallStarted(call) => started(&call.name),
            Event::CallFinished(execution) => finished(&execution.call().name),
            Event::TurnFinished { response, .. } => {
                response.message.tool_calls.iter().for_each(|call| reply(&call.name));
            }
            _ => {}
        })
}

const RULES: [&str; 8] =
    ["rewrite::call", "needs_approval", "approver", "output", "ready", "started", "finished", "reply"];

fn assert_only_the_executed_name(seen: &Seen, written: &(String, String)) {
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    for rule in RULES {
        let names: Vec<_> = seen.iter().filter(|(one, _)| *one == rule).map(|(_, name)| &**name).collect();
        assert!(!names.is_empty(), "{rule} was not asked about {written:?}");
        assert!(names.iter().all(|name| *name == "delete"), "{rule} saw {names:?} for {written:?}");
    }
    let announced = seen.iter().filter(|(rule, name)| *rule == "announced" && name != "call_tool");
    announced.for_each(|(_, name)| assert_eq!(name, "delete", "announced for {written:?}"));
}

#[tokio::test]
async fn every_rule_sees_the_name_that_is_executed() {
    let seen = Seen::default();
    for call in garbled() {
        let script = || ScriptedModel::new().calls(&*call.0, &*call.1).says("Done.");
        let answer = alike(|| watched(script(), &seen)).await.unwrap();
        assert_eq!(answer.new_messages()[2].text(), "a is locked", "{call:?}");
        assert_only_the_executed_name(&seen, &call);
    }
}

#[tokio::test]
async fn every_rule_sees_the_name_that_is_executed_through_call_tool() {
    let seen = Seen::default();
    let other = |number| {
        let tool = FunctionTool::new(format!("unrelated_{number}"), || "nothing").description("Polishes");
        Arc::new(tool) as Arc<dyn Tool>
    };
    let others = ToolSet::new((0..40).map(other)).unwrap();
    for call in through_search() {
        let script = || ScriptedModel::new().calls(&*call.0, &*call.1).says("Done.");
        let search = ToolSearch::bm25().min_tools(1).call_through();
        let build = || watched(script(), &seen).tools(others.clone()).tool_search(search.clone());
        let answer = alike(build).await.unwrap();
        assert_eq!(answer.new_messages()[2].text(), "a is locked", "{call:?}");
        assert_only_the_executed_name(&seen, &call);
    }
}

#[tool("Looks")]
fn look(at: u32) -> u32 {
    at
}

fn looks(count: usize) -> (&'static str, String) {
    let uses: Vec<_> = (0..count)
        .map(|at| format!(r#"{{"recipient_name": "look", "parameters": {{"at": {at}}}}}"#))
        .collect();
    ("multi_tool_use.parallel", format!(r#"{{"tool_uses": [{}]}}"#, uses.join(",")))
}

#[tokio::test]
async fn the_calls_inside_of_calls_are_counted_one_by_one() {
    let script = || ScriptedModel::new().calls_all([looks(2), looks(2)]).says("Done.");
    let agent = || Agent::builder(script()).tools(tools![look]);
    assert_eq!(alike(|| agent().limits(|l| l.max_calls(4))).await.unwrap().tool_executions().len(), 4);
    let error = alike(|| agent().limits(|l| l.max_calls(3))).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxCalls(3))));
    assert!(error.tool_executions().is_empty());
}

#[test]
fn a_reply_contains_at_most_1024_calls_inside_of_calls() {
    for (calls, expected) in [
        (vec![looks(1024)], 1024),
        (vec![looks(1025)], 1),
        (vec![looks(1000), looks(24), looks(1)], 1025),
        (vec![looks(1000), looks(25), looks(24)], 1025),
        (vec![looks(80_000)], 1),
    ] {
        let calls =
            calls.into_iter().enumerate().map(|(n, call)| ToolCall::new(format!("c{n}x"), call.0, call.1));
        let mut run = Run::new([Message::user("Go")]);
        let reply = AssistantMessage::default().with_tool_calls(calls.collect::<Vec<_>>());
        run.record_response(ChatResponse::new(reply)).unwrap();
        assert_eq!(run.current_calls().count(), expected);
    }
}
