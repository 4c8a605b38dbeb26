//! What would end a client's stream: calls that were not announced, members that change prototypes, unfinished parts.

use serde_json::{Value, json};
use tool_core::model::{AssistantMessage, ChatResponse};
use tool_core::{Event, ToolCall, ToolError, ToolExecution, ToolOutput};

use super::ag_ui::AgUi;
use super::stream::{Encoder, Protocol, Stop};
use super::ui::UiStream;
use crate::entry::Entry;

fn read(event: Value) -> Entry {
    let mut record = json!({ "position": 0 });
    record.as_object_mut().unwrap().extend(event.as_object().unwrap().clone());
    Entry::Event(serde_json::from_value(record).unwrap())
}

fn finished(id: &str, outcome: Result<ToolOutput, ToolError>) -> Entry {
    Event::CallFinished(ToolExecution::new(ToolCall::new(id, "pay", "{}"), outcome)).into()
}

fn ready(id: &str, arguments: &str) -> Entry {
    Event::call_ready(0, ToolCall::new(id, "pay", arguments)).into()
}

fn turn(turn: u32) -> Entry {
    Event::turn_started(turn, 1).into()
}

fn waiting(call: &str) -> Entry {
    let reason = json!({ "approval": ToolCall::new(call, "pay", "{}") });
    let wait =
        json!({ "id": "w", "path": call, "tool": "pay", "reason": reason, "since": 0, "deadline": null });
    read(json!({ "type": "waiting", "waits": [wait] }))
}

fn done() -> Entry {
    let usage = json!({ "input_tokens": 0, "output_tokens": 0, "total_tokens": 0 });
    read(json!({
        "type": "done", "text": "", "finish_reason": "stop", "tool_executions": [], "usage": usage, "turns": 1,
        "messages": [],
    }))
}

fn encode(mut encoder: Encoder<impl Protocol>, entries: &[Entry]) -> Vec<String> {
    entries.iter().flat_map(|entry| encoder.encode(entry)).collect()
}

fn ag_ui() -> Encoder<AgUi> {
    Encoder::new("run", AgUi { thread: "t".into(), run: "r".into(), message: "m".into() })
}

fn ui(entries: &[Entry]) -> Vec<String> {
    encode(Encoder::new("run", UiStream), entries)
}

fn types(events: &[String]) -> Vec<String> {
    let type_of =
        |event: &String| serde_json::from_str::<Value>(event).unwrap()["type"].as_str().unwrap().to_owned();
    events.iter().map(type_of).collect()
}

#[test]
fn a_call_that_was_never_announced_is_shown_before_its_outcome() {
    let events = ui(&[finished("c", Err(ToolError::failed("no")))]);
    assert_eq!(types(&events), ["tool-input-start", "tool-input-available", "tool-output-error"]);
}

#[test]
fn a_repeated_id_is_announced_once_and_a_call_that_was_not_made_is_closed() {
    let announced = |index: usize, id: &str| {
        read(json!({ "type": "call_announced", "index": index, "id": id, "name": "pay" }))
    };
    let end = Event::turn_finished(1, ChatResponse::new(AssistantMessage::default())).into();
    let events = ui(&[
        turn(1),
        announced(0, "c"),
        announced(1, "c"),
        announced(2, ""),
        announced(3, "d"),
        ready("c", "{}"),
        end,
    ]);
    assert_eq!(
        types(&events),
        ["start-step", "tool-input-start", "tool-input-start", "tool-input-available", "tool-input-error"]
    );
}

#[test]
fn arguments_keep_their_digits_and_never_change_prototypes() {
    let text = "{\n\"n\": 12345678901234567890.10}";
    let [_, event] = &ui(&[ready("c", text)])[..] else { panic!() };
    assert!(event.ends_with(r#","input":{ "n": 12345678901234567890.10}}"#), "{event}");
    for hostile in
        [r#"{"__proto__": 1}"#, r#"[{"constructor": {}}]"#, r#"{"\u005f_proto__": 1}"#, "no JSON", "{"]
    {
        let [_, event] = &ui(&[ready("c", hostile)])[..] else { panic!() };
        assert_eq!(serde_json::from_str::<Value>(event).unwrap()["input"], json!(hostile));
    }
}

#[test]
fn a_call_that_was_denied_elsewhere_has_an_end() {
    let entries = [turn(1), ready("c", "{}"), waiting("c"), turn(2)];
    let events = ui(&entries);
    assert_eq!(
        types(&events)[3..],
        ["tool-approval-request", "finish-step", "tool-output-denied", "start-step"]
    );
}

#[test]
fn everything_is_closed_before_an_end() {
    let entries = [turn(1), Event::Text("a".into()).into(), done()];
    let encoder = ag_ui();
    assert_eq!(
        types(&encode(encoder, &entries)),
        [
            "STEP_STARTED",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "STEP_FINISHED",
            "RUN_FINISHED"
        ]
    );
    assert_eq!(
        types(&ui(&entries)),
        ["start-step", "text-start", "text-delta", "text-end", "finish-step", "finish"]
    );
}

#[test]
fn a_call_inside_an_agent_has_its_path() {
    let inner = |entry: Entry| entry.event().unwrap().clone().inside("helper", "a").into();
    let events = ui(&[
        turn(1),
        ready("a", "{}"),
        inner(ready("b", "{}")),
        waiting("a/b"),
        inner(finished("b", Ok(ToolOutput::text("paid")))),
        finished("a", Ok(ToolOutput::text("done"))),
    ]);
    let shown: Vec<_> = events.iter().filter(|event| event.contains("a/b")).cloned().collect();
    assert_eq!(
        types(&shown),
        ["tool-input-start", "tool-input-available", "tool-approval-request", "tool-output-available"]
    );
}

#[test]
fn a_stream_that_waits_or_breaks_says_so() {
    let mut encoder = ag_ui();
    encoder.encode(&waiting("c"));
    let last: Value = serde_json::from_str(encoder.stop(Stop::Waits).last().unwrap()).unwrap();
    assert_eq!(last["outcome"]["interrupts"][0]["id"], "w");
    assert_eq!(types(&encoder.stop(Stop::Cut)), ["RUN_ERROR"]);
}
