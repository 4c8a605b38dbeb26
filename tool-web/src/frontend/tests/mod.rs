//! What would end a client's stream: calls that were not announced, members that change prototypes, unfinished parts. What a client
//! could take: memory, and calls of other parties.

mod customers;

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tool_core::memory::InMemoryStore;
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ToolDefinition};
use tool_core::store::RunReader;
use tool_core::testing::ScriptedModel;
use tool_core::tool::ExternalTool;
use tool_core::toolset::provide;
use tool_core::{Agent, Event, ToolCall, ToolError, ToolExecution, ToolOutput, ToolSet, tool, tools};
use tower_service::Service;

use super::adapter::Executors;
use super::ag_ui::AgUi;
use super::stream::{Encoder, Protocol, Start, Stop, events};
use super::ui::UiStream;
use super::{Frontend, conversation};
use crate::Principal;
use crate::entry::Entry;
use crate::hub::Hub;
use crate::log::RunLog;
use crate::source::Source;

fn read(event: Value) -> Entry {
    let mut record = json!({ "position": 0 });
    record.as_object_mut().unwrap().extend(event.as_object().unwrap().clone());
    Entry::Event(serde_json::from_value(record).unwrap())
}

fn entry(event: Event) -> Entry {
    Entry::new(event.at(0), None)
}

fn finished(id: &str, outcome: Result<ToolOutput, ToolError>) -> Entry {
    entry(Event::CallFinished(ToolExecution::new(ToolCall::new(id, "pay", "{}"), outcome)))
}

fn ready(id: &str, arguments: &str) -> Entry {
    entry(Event::call_ready(0, ToolCall::new(id, "pay", arguments)))
}

fn turn(turn: u32) -> Entry {
    entry(Event::turn_started(turn, 1))
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
    Encoder::new(
        "run",
        Executors { decides: true, ..Executors::default() },
        AgUi { thread: "t".into(), run: "r".into(), message: "m".into(), may_edit: true },
    )
}

fn ui(entries: &[Entry]) -> Vec<String> {
    let executors = Executors { decides: true, ..Executors::default() };
    encode(Encoder::new("run", executors, UiStream), entries)
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
    let end = entry(Event::turn_finished(1, ChatResponse::new(AssistantMessage::default())));
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
    let entries = [turn(1), entry(Event::Text("a".into())), done()];
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
    let inner = |inner: Entry| entry(inner.event().unwrap().clone().inside("helper", "a"));
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

/// Nothing follows the end of a run that a client has.
#[tokio::test]
async fn a_stream_after_an_end_is_silent() {
    let store = InMemoryStore::new();
    let agent = Agent::builder(ScriptedModel::new().fails("the line is dead")).run_store(store);
    let agent = agent.name("desk").build().unwrap();
    let run = agent.ask("Go").await.unwrap_err().into_run();
    let hub = Hub::new(vec![Arc::new(Source::agent(agent))], false);
    let log = hub.shown_log(run.id().as_str()).await.unwrap();
    let read = async |start: Start| {
        let encoder = Encoder::new("run", Executors::default(), UiStream);
        let frames: Vec<_> = events(&log, encoder, start).collect().await;
        String::from_utf8(frames.concat()).unwrap()
    };
    let whole = read(Start::default()).await;
    assert!(whole.contains("start-step") && whole.contains("the run failed"), "{whole}");
    assert_eq!(read(Start { after: log.last(), ..Start::default() }).await, "data: [DONE]\n\n");
    let again = read(Start { after: log.last().map(|last| last - 1), ..Start::default() }).await;
    assert!(!again.contains("start-step") && again.contains("the run failed"), "{again}");
}

/// A reply is complete for a client that has missed its deltas, or some of them, and nothing is sent twice.
#[test]
fn what_was_not_sent_of_a_reply_is_sent_with_its_end() {
    let mut reply = AssistantMessage::text("It is 42.");
    reply.reasoning = Some("Well.".into());
    let end = || entry(Event::turn_finished(1, ChatResponse::new(reply.clone())));
    let deltas = [
        entry(Event::Reasoning("We".into())),
        entry(Event::Reasoning("ll.".into())),
        entry(Event::Text("It is".into())),
    ];
    for sent in 0..=deltas.len() {
        let mut entries = vec![turn(1)];
        entries.extend(deltas[..sent].iter().cloned());
        entries.push(end());
        let events = ui(&entries).into_iter().map(|event| serde_json::from_str::<Value>(&event).unwrap());
        let (mut text, mut reasoning) = (String::new(), String::new());
        for event in events {
            match event["type"].as_str().unwrap() {
                "text-delta" => text += event["delta"].as_str().unwrap(),
                "reasoning-delta" => reasoning += event["delta"].as_str().unwrap(),
                _ => {}
            }
        }
        assert_eq!((&*text, &*reasoning), ("It is 42.", "Well."), "{sent} deltas");
    }
}

/// Sends a request and returns the stream.
async fn send(frontend: &Frontend, body: Value) -> String {
    let request =
        http::Request::post("/").header("host", "localhost").header("content-type", "application/json");
    let response = frontend.clone().call(request.body(Body::from(body.to_string())).unwrap()).await.unwrap();
    let body = to_bytes(Body::new(response.into_body()), usize::MAX).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

/// Asks in AG-UI, or supplies the result of a call.
async fn send_ag_ui(frontend: &Frontend, thread: &str, tools: Value, result_of: Option<&str>) -> String {
    let message = match result_of {
        Some(call) => json!({ "role": "tool", "toolCallId": call, "content": "forged" }),
        None => json!({ "role": "user", "content": "Go" }),
    };
    let body = json!({ "threadId": thread, "runId": "r", "messages": [message], "tools": tools });
    send(frontend, body).await
}

fn log_of(frontend: &Frontend) -> Arc<RunLog> {
    frontend.chats.hub.logs().pop_back().unwrap()
}

fn tool(name: &str, bytes: usize) -> Value {
    json!({ "name": name, "description": "x".repeat(bytes), "parameters": { "type": "object" } })
}

#[tokio::test]
async fn the_tools_of_a_frontend_are_bounded_and_leave_with_the_run() {
    let model = ScriptedModel::new().calls("pick", "{}").says("Done.");
    let frontend = crate::ag_ui(Agent::builder(model).build().unwrap());
    let many: Vec<_> = (0..129).map(|number| tool(&format!("t{number}"), 0)).collect();
    for (tools, number, bytes) in [(json!(many), 129, 2_599), (json!([tool("pick", 200_000)]), 1, 200_021)] {
        let refused = send_ag_ui(&frontend, "t", tools, None).await;
        let expected =
            format!("`tools` has {number} tools of {bytes} bytes, and can have 128 of 131072 bytes");
        assert!(refused.contains("RUN_ERROR") && refused.contains(&expected), "{refused}");
    }
    let tools = json!([tool("pick", 100_000)]);
    let waits = send_ag_ui(&frontend, "t", tools.clone(), None).await;
    assert!(waits.contains(r#""pendingToolCallIds":["call_1_0"]"#), "{waits}");
    let log = log_of(&frontend);
    assert!(log.bytes() > 16 * 100_000, "{}", log.bytes());
    let done = send_ag_ui(&frontend, "t", tools, Some("call_1_0")).await;
    assert!(done.contains("Done."), "{done}");
    assert!(log.tools().is_empty() && log.bytes() < 100_000, "{}", log.bytes());
}

/// A browser answers for no tool of a server, even while that one does not supply it, unless the application names the tool.
#[tokio::test]
async fn a_frontend_offers_only_listed_tools_to_an_agent_with_providers() {
    let servers = || provide(|_| ToolSet::default());
    let other = Agent::builder(ScriptedModel::new()).tool_provider(servers()).build().unwrap();
    for is_handed_off in [false, true] {
        let agent = |is_offered: bool| {
            let expected = move |request: &ChatRequest<'_>| {
                request.tools().iter().filter(|tool| tool.name() != "other").count()
                    == usize::from(is_offered)
            };
            let agent = Agent::builder(ScriptedModel::new().expects(expected).says("Done."));
            let agent = match is_handed_off {
                true => agent.handoff_to("other", "Helps", &other),
                false => agent.tool_provider(servers()),
            };
            crate::ag_ui(agent.build().unwrap())
        };
        let listed = agent(true).browser_tools(["orders_status"]).unwrap();
        for frontend in [agent(false), listed] {
            let done = send_ag_ui(&frontend, "t", json!([tool("orders_status", 0)]), None).await;
            assert!(done.contains("Done."), "{done}");
        }
    }
}

/// The tool of another agent has no approval by its name, in a process as well that has only the stored run.
#[tokio::test]
async fn a_run_that_was_loaded_again_has_its_handoff() {
    #[tool("Cancels", needs_approval)]
    fn cancel() {}
    let next = Agent::builder(ScriptedModel::new().calls("cancel", "{}")).tools(tools![cancel]);
    let agent = Agent::builder(ScriptedModel::new().calls("other", "{}").calls("cancel", "{}"));
    let agent = agent.tools(tools![cancel]).handoff_to("other", "Helps", &next.build().unwrap());
    let store = InMemoryStore::new();
    let run = agent.run_store(store.clone()).build().unwrap().ask("Go").await.unwrap_err().into_run();
    assert_eq!(run.handoffs().len(), 1);
    let executors = Executors { approvable: ["cancel".to_owned()].into(), ..Executors::default() };
    let read = RunReader::new(run.id().as_str()).read(&store).await.unwrap().unwrap();
    let entries: Vec<_> = read.events.into_iter().map(|record| Entry::new(record, None)).collect();
    let shown = encode(Encoder::new("run", executors, UiStream), &entries);
    let position = |what: &str| shown.iter().position(|event| event.contains(what));
    assert!(position("\"handoff\"") < position("waiting for a decision"), "{shown:?}");
    assert!(position("handoff").is_some() && position("tool-approval-request").is_none(), "{shown:?}");
}

/// The application executes the calls of `lookup`, also calls of an agent inside and of another agent's tool of that name.
#[tokio::test]
async fn calls_of_the_application_are_neither_shown_nor_answered() {
    let lookup = || ExternalTool::new(ToolDefinition::new("lookup"));
    let twice = |tool: &str, arguments: &str| {
        ScriptedModel::new().calls(tool, arguments).calls(tool, arguments).says("Done.")
    };
    let own = || Agent::builder(twice("lookup", r#"{"card": "visa"}"#)).tools(lookup()).build().unwrap();
    let inner = own().as_tool("helper", "Helps");
    let outer = Agent::builder(twice("helper", r#"{"question": "Look"}"#)).tools(inner).build().unwrap();
    let next = own();
    let handing = Agent::builder(twice("other", "{}")).handoff_to("other", "Helps", &next);
    for agent in [own(), outer, handing.build().unwrap()] {
        let (chat, ag_ui) = (crate::ui_stream(agent.clone()), crate::ag_ui(agent.clone()));
        let message = json!({ "role": "user", "parts": [{ "type": "text", "text": "Go" }] });
        let shown = [
            send(&chat, json!({ "id": "c", "messages": [message] })).await,
            send_ag_ui(&ag_ui, "t", json!([]), None).await,
        ];
        assert!(!shown.iter().any(|shown| shown.contains("visa")), "{shown:?}");
        for (frontend, thread) in [(&chat, "c"), (&ag_ui, "t")] {
            let name = conversation(&Principal::local(), thread).unwrap();
            let run = frontend.chats.hub.run_of(&frontend.chats.source, &name).await.unwrap();
            let loaded = async || frontend.chats.hub.load(&run).await.unwrap().unwrap().run.waits();
            let [wait] = &loaded().await[..] else { panic!() };
            let refused = match thread {
                "c" => {
                    let part = json!({ "type": "tool-lookup", "state": "output-available", "toolCallId": wait.path, "output": 1 });
                    send(
                        frontend,
                        json!({ "id": "c", "messages": [{ "role": "assistant", "parts": [part] }] }),
                    )
                    .await
                }
                // Offered too late.
                _ => send_ag_ui(frontend, thread, json!([tool("lookup", 0)]), Some(&wait.path)).await,
            };
            assert!(refused.contains("the run does not wait for what was sent"), "{refused}");
            assert_eq!(loaded().await.len(), 1);
        }
    }
    let script = ScriptedModel::new().calls("lookup", r#"{"card": "visa"}"#).says("Done.");
    let agent = Agent::builder(script).tools(lookup()).build().unwrap();
    let unknown = crate::ui_stream(agent.clone()).browser_tools(["look"]).unwrap_err();
    assert_eq!(unknown.to_string(), "the agent has no tool `look` of its own; it has `lookup`");
    let chat = crate::ui_stream(agent).browser_tools(["lookup"]).unwrap();
    let message = json!({ "role": "user", "parts": [{ "type": "text", "text": "Go" }] });
    let shown = send(&chat, json!({ "id": "c", "messages": [message] })).await;
    assert!(shown.contains("visa"), "{shown}");
    let part =
        json!({ "type": "tool-lookup", "state": "output-available", "toolCallId": "call_1_0", "output": 1 });
    let done =
        send(&chat, json!({ "id": "c", "messages": [{ "role": "assistant", "parts": [part] }] })).await;
    assert!(done.contains("Done."), "{done}");
}
