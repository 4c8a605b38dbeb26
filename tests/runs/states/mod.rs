//! The run without a model, tools or a runtime: its input, its serialized state, and its debug output.

mod examples;
mod rules;

use serde_json::{Value, json};
use tests::support::deciding::Decide;
use tool_core::model::{AssistantMessage, ChatResponse};
use tool_core::run::{Decision, Run, Step};
use tool_core::tool::{ToolErrorKind, ToolExecution};
use tool_core::{Event, Message, RunErrorKind, ToolCall, ToolError, ToolOutput};

use crate::refusal;

#[test]
fn a_run_accepts_only_requested_input() {
    let reply = |calls: &[&str]| {
        let calls = calls.iter().map(|id| ToolCall::new(*id, "sum", "{}"));
        ChatResponse::new(AssistantMessage::default().with_tool_calls(calls))
    };
    let outcome = |id: &str| ToolExecution::new(ToolCall::new(id, "sum", "{}"), Ok(ToolOutput::text("1")));
    let mut run = Run::new([Message::user("What now?")]);
    assert_eq!(refusal(run.record_result(outcome("a"))), "no call with this id is open");
    assert!(matches!(run.clone().finish().unwrap_err().kind(), RunErrorKind::Step(_)));
    run.record_response(reply(&["a", "b"])).unwrap();
    assert_eq!(refusal(run.record_response(reply(&["c"]))), "no model response is expected in this state");
    assert_eq!(refusal(run.record_result(outcome("c"))), "the current turn has no call with this id");
    run.record_result(outcome("a")).unwrap();
    assert_eq!(refusal(run.record_result(outcome("a"))), "the call already has a result");
    assert!(
        matches!(run.next(&Default::default()), Step::CallTools(calls) if calls.len() == 1 && calls[0].id == "b")
    );
    let failed = Err(ToolError::failed("no"));
    run.record_result(ToolExecution::new(ToolCall::new("b", "sum", "{}"), failed)).unwrap();
    assert_eq!(run.messages().len(), 4);
    run.record_response(ChatResponse::new(AssistantMessage::text("Done."))).unwrap();
    assert!(matches!(run.next(&Default::default()), Step::Done));
    assert_eq!(refusal(run.record_response(reply(&[]))), "no model response is expected in this state");
}

#[test]
fn refuses_inconsistent_states() {
    let mut run = Run::new([Message::user("What now?")]);
    let calls = ["a", "b"].map(|id| ToolCall::new(id, "sum", "{}"));
    run.record_response(ChatResponse::new(AssistantMessage::default().with_tool_calls(calls))).unwrap();
    run.record_result(ToolExecution::new(ToolCall::new("a", "sum", "{}"), Ok(ToolOutput::text("1"))))
        .unwrap();
    let state = serde_json::to_value(&run).unwrap();
    type Breaks = fn(&mut Value);
    let broken: [(Breaks, &str); 11] = [
        (|state| state["history"]["given"] = json!(9), "the history has more messages than the run"),
        (
            |state| state["stage"]["calling"]["calls"] = json!([]),
            "the calls of the turn differ from the calls of the last message",
        ),
        (
            |state| state["stage"]["calling"]["calls"][0]["state"]["finished"]["call"]["id"] = json!("b"),
            "a call has the outcome of another",
        ),
        (|state| state["stage"] = json!("asking"), "the last message has calls that nobody executes"),
        (
            |state| state["history"]["messages"] = json!([]),
            "the calls of the turn differ from the calls of the last message",
        ),
        (
            |state| state["history"]["messages"][1]["message"]["tool_calls"][1]["id"] = json!("a"),
            "two calls of a turn have one id",
        ),
        (
            |state| {
                let calls = &mut state["stage"]["calling"]["calls"];
                calls[1] = calls[0].clone();
                calls[1]["state"]["finished"]["call"]["id"] = json!("b");
            },
            "no call of the turn is open",
        ),
        (
            |state| state["stage"]["calling"]["calls"][1]["state"] = json!({ "waiting": { "attempt": 1 } }),
            "a call waits for nothing",
        ),
        (|state| state["stage"] = json!({ "returned": { "positions": [] } }), "the answer is missing"),
        (
            |state| {
                let waiting = json!({ "state": "awaiting_result" });
                state["stage"] = json!({ "undoing": { "ending": "cancelled", "standing": waiting } });
            },
            "no call is left to undo",
        ),
        (
            |state| state["history"]["executions"] = json!([{ "id": "c" }]),
            "a finished call is missing from the messages, or recorded twice",
        ),
    ];
    assert!(serde_json::from_value::<Run>(state.clone()).is_ok());
    for (break_it, expected) in broken {
        let mut state = state.clone();
        break_it(&mut state);
        let error = serde_json::from_value::<Run>(state).expect_err(expected).to_string();
        assert_eq!(error, format!("the state of the run is inconsistent: {expected}"));
    }
}

#[test]
fn refuses_states_of_unknown_formats() {
    let mut state = serde_json::to_value(Run::new([Message::user("What now?")])).unwrap();
    assert_eq!(state["format"], 1);
    state["format"] = json!(2);
    let error = serde_json::from_value::<Run>(state).unwrap_err();
    assert_eq!(error.to_string(), "unsupported run format 2; this version reads format 1");
}

#[test]
fn a_state_may_contain_its_conversation() {
    let run = Run::new([Message::user("What now?")]);
    let state = serde_json::to_value(&run).unwrap();
    assert_eq!(state["head"].get("conversation"), None);
    assert_eq!(serde_json::from_value::<Run>(state).unwrap().conversation(), None);
    let state = serde_json::to_value(run.with_conversation("user-7")).unwrap();
    assert_eq!(state["head"]["conversation"], "user-7");
    let run: Run = serde_json::from_value(state).unwrap();
    assert_eq!(run.conversation().map(ToString::to_string).as_deref(), Some("user-7"));
}

#[test]
fn restored_errors_retain_kind_and_text() {
    let execution =
        ToolExecution::new(ToolCall::new("a", "sum", "{}"), Err(ToolError::failed("no such city")));
    let state = serde_json::to_string(&execution).unwrap();
    let execution: ToolExecution = serde_json::from_str(&state).unwrap();
    let error = execution.outcome().unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::Failed);
    assert_eq!(error.to_string(), "no such city");
}

#[test]
fn debug_output_omits_content() {
    let mut run = Run::new([Message::user("secret 1")]);
    let call = ToolCall::new("a", "sum", "{\"secret\": 2}");
    run.record_response(ChatResponse::new(
        AssistantMessage::text("secret 3").with_tool_calls([call.clone()]),
    ))
    .unwrap();
    run.record_result(ToolExecution::new(call, Ok(ToolOutput::text("secret 4")))).unwrap();
    assert!(!format!("{run:?}").contains("secret"), "{run:?}");
    let failed = ToolError::invalid_arguments("expected a number, got secret 5");
    assert!(!format!("{failed:?} {:?}", Event::Text("secret 6".into())).contains("secret"), "{failed:?}");
    let call = ToolCall::new("b", "sum", "{\"secret\": 7}");
    run.record_response(ChatResponse::new(AssistantMessage::default().with_tool_calls([call.clone()])))
        .unwrap();
    run.require_approval("b").unwrap();
    run.decide_call("b", Decision::approve_with("{\"secret\": 8}")).unwrap();
    assert!(!format!("{run:?}").contains("secret"), "{run:?}");
    run.record_result(ToolExecution::new(call, Ok(ToolOutput::text("secret 9")))).unwrap();
    assert!(!format!("{run:?}").contains("secret"), "{run:?}");
    let mut refusal = AssistantMessage::default();
    refusal.refusal = Some("secret 10".into());
    let mut refused = run.clone();
    refused.record_response(ChatResponse::new(refusal)).unwrap();
    refused.reject_answer("secret 11").unwrap();
    assert!(!format!("{refused:?}").contains("secret"), "{refused:?}");
    run.record_response(ChatResponse::new(AssistantMessage::text("secret 12"))).unwrap();
    let answer = run.finish().unwrap();
    assert!(!format!("{answer:?} {:?}", Event::Done(answer.clone())).contains("secret"), "{answer:?}");
}
