//! Complete runs against a scripted server: the requests of each turn.

use serde_json::{Value, json};
use tool_core::agent::AgentBuilder;
use tool_core::content::Image;
use tool_core::model::{AssistantMessage, ChatResponse, ToolChoice};
use tool_core::run::Decision;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, Answer, Message, ModelOptions, RunError, ToolCall, ToolOutput, tool, tools};
use tool_openai::{Endpoint, Responses};

use super::endpoint::{bodies, event_stream, input, json_answer, model, model_of};
use tests::support::RawServer;
use tests::support::ways::{await_it, drive_it, stream_it};

/// Returns the time of high tide.
#[tool]
fn get_tide(port: String) -> String {
    format!("{port}: at six, “spring”")
}

/// Draws a chart of the wind.
#[tool]
fn get_wind(port: String, hours: u8) -> ToolOutput {
    ToolOutput::text(format!("{port}, {hours} h")).with_part(Image::from_bytes("image/png", [0, 1, 2]))
}

/// Books a berth.
#[tool(needs_approval)]
fn book(port: String) -> String {
    format!("booked at {port}")
}

pub(super) fn reasoning(id: &str) -> Value {
    json!({ "id": id, "type": "reasoning", "summary": [], "encrypted_content": format!("enc-{id}"), "unknown": 0.1 })
}

pub(super) fn text_message(text: &str, phase: &str) -> Value {
    let part = json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] });
    json!({ "id": "msg", "type": "message", "status": "completed", "role": "assistant", "content": [part], "phase": phase })
}

pub(super) fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({ "id": format!("fc_{id}"), "type": "function_call", "status": "completed", "call_id": id, "name": name, "arguments": arguments })
}

/// Returns two turns with two calls each, and an answer. The second turn repeats an id of the first.
fn turns() -> [Vec<Value>; 3] {
    [
        vec![
            reasoning("rs_1"),
            call("call_a", "get_tide", r#"{"port": "Brest"}"#),
            call("call_b", "get_wind", r#"{"port": "Cork", "hours": 6}"#),
        ],
        vec![
            reasoning("rs_2"),
            text_message("One more.", "commentary"),
            call("call_1", "get_tide", r#"{"port": "Cork"}"#),
            call("call_1", "get_wind", "{broken"),
        ],
        vec![reasoning("rs_3"), text_message("At six.", "final_answer")],
    ]
}

/// Returns an answer with these items, streamed or not.
pub(super) fn reply(items: &[Value], is_streamed: bool) -> Vec<u8> {
    let usage = json!({ "input_tokens": 10, "output_tokens": 5, "total_tokens": 15 });
    let response = json!({ "id": "resp_1", "status": "completed", "output": items, "usage": usage });
    if !is_streamed {
        return json_answer(&response);
    }
    let mut events = Vec::new();
    let mut push = |event: Value| events.extend_from_slice(format!("data: {event}\n\n").as_bytes());
    for (index, item) in items.iter().enumerate() {
        push(json!({ "type": "response.output_item.added", "output_index": index, "item": item }));
        push(json!({ "type": "response.output_item.done", "output_index": index, "item": item }));
    }
    push(json!({ "type": "response.completed", "response": response }));
    event_stream(&events)
}

pub(super) async fn server(turns: &[Vec<Value>], is_streamed: bool) -> RawServer {
    RawServer::answering_in_turn(turns.iter().map(|items| reply(items, is_streamed)).collect()).await
}

fn agent(model: Responses) -> AgentBuilder {
    Agent::builder(model).instructions("Use the tools.").tools(tools![get_tide, get_wind, book])
}

/// A way to drive a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Way {
    Awaited,
    Streamed,
    StepByStep,
}

/// Returns the answer of a run with these turns, and the bodies that it sends.
pub(super) async fn sent(
    turns: &[Vec<Value>],
    way: Way,
    build: fn(Responses) -> AgentBuilder,
) -> (Answer, Vec<String>) {
    let server = server(turns, way == Way::Streamed).await;
    let agent = build(model(&server)).build().unwrap();
    let approve = |_: &ToolCall| Decision::approve_with(r#"{"port": "Kinsale"}"#);
    let answer: Result<Answer, RunError> = match way {
        Way::Awaited => await_it(&agent, "When?", approve).await,
        Way::Streamed => stream_it(&agent, "When?", approve).await,
        Way::StepByStep => drive_it(&agent, "When?", approve).await,
    };
    (answer.unwrap(), bodies(&server))
}

pub(super) const WAYS: [Way; 3] = [Way::Awaited, Way::Streamed, Way::StepByStep];

#[tokio::test]
async fn runs_two_turns_of_parallel_calls() {
    for way in WAYS {
        let (answer, bodies) = sent(&turns(), way, agent).await;
        assert_eq!((answer.text(), answer.turns()), ("At six.", 3), "{way:?}");
        assert_eq!(answer.usage().total_tokens, 45, "{way:?}");
        let [first, second, _] = turns();
        let items = input(bodies.last().unwrap());
        let texts = |items: &[Value]| items.iter().map(Value::to_string).collect::<Vec<_>>();
        // The items are sent back unchanged, except for the repeated id and the arguments that are not an object.
        let id = items.iter().rfind(|item| item["name"] == "get_wind").unwrap()["call_id"].clone();
        assert_ne!(id, "call_1", "{way:?}");
        let mut changed = second[3].clone();
        changed["call_id"] = id.clone();
        changed["arguments"] = json!(r#"{"INVALID_JSON":"{broken"}"#);
        assert_eq!(texts(&items[2..5]), texts(&first), "{way:?}");
        assert_eq!(texts(&items[7..10]), texts(&second[..3]), "{way:?}");
        assert_eq!(items[10].to_string(), changed.to_string(), "{way:?}");
        let results = [&items[5], &items[6], &items[11], &items[12]];
        let ids = results.map(|item| item["call_id"].clone());
        assert_eq!(ids, ["call_a".into(), "call_b".into(), "call_1".into(), id], "{way:?}");
        assert_eq!(results[0]["output"], "Brest: at six, “spring”", "{way:?}");
        assert_eq!(results[1]["output"][0], json!({ "type": "input_text", "text": "Cork, 6 h" }), "{way:?}");
        assert_eq!(results[1]["output"][1]["type"], "input_image", "{way:?}");
        assert_eq!(items.len(), 13, "{way:?}");
    }
}

/// The provider's prompt cache hits, and a run that is restored between any two steps sends the same bytes.
#[tokio::test]
async fn a_turn_starts_with_the_bytes_of_the_previous_one() {
    let chosen = |model| agent(model).tool_choice(ToolChoice::Required);
    for build in [agent, chosen] {
        let (_, awaited) = sent(&turns(), Way::Awaited, build).await;
        assert_eq!(awaited.len(), 3);
        for pair in awaited.windows(2) {
            let end = pair[0].rfind(']').unwrap();
            assert!(pair[1].starts_with(&pair[0][..end]), "{}\n{}", pair[0], pair[1]);
        }
        let (_, by_hand) = sent(&turns(), Way::StepByStep, build).await;
        assert_eq!(awaited, by_hand);
        let (_, streamed) = sent(&turns(), Way::Streamed, build).await;
        let plain: Vec<_> = streamed.iter().map(|body| body.replace(r#""stream":true,"#, "")).collect();
        assert_eq!(awaited, plain);
    }
}

#[tokio::test]
async fn sends_arguments_as_changed_by_the_approver() {
    let turns = [
        vec![reasoning("rs_1"), call("call_a", "book", r#"{"port": "Cork"}"#)],
        vec![text_message("Booked.", "final_answer")],
    ];
    for way in WAYS {
        let (_, bodies) = sent(&turns, way, agent).await;
        let items = input(&bodies[1]);
        assert_eq!(items[2], turns[0][0], "{way:?}");
        assert_eq!(items[3], call("call_a", "book", r#"{"port": "Kinsale"}"#), "{way:?}");
        assert_eq!(items[4]["output"], "booked at Kinsale", "{way:?}");
    }
}

/// Continues a conversation and returns the input items of the next request.
async fn continued_input(endpoint: Endpoint, messages: &[Message]) -> Vec<Value> {
    let server = server(&[vec![text_message("So.", "final_answer")]], false).await;
    let agent = Agent::builder(model_of(endpoint, &server)).build().unwrap();
    agent.ask("And now?").history(messages).await.unwrap();
    input(&bodies(&server)[0])
}

#[tokio::test]
async fn sends_no_items_to_another_provider() {
    let (answer, _) = sent(&turns(), Way::Awaited, agent).await;
    let state = serde_json::to_string(answer.new_messages()).unwrap();
    let messages: Vec<Message> = serde_json::from_str(&state).unwrap();
    let has =
        |items: &[Value], what: &str| items.iter().filter(|item| item.to_string().contains(what)).count();
    let same = continued_input(Endpoint::openai(), &messages).await;
    assert_eq!((has(&same, "enc-rs_"), has(&same, "commentary")), (3, 1));
    let other = continued_input(Endpoint::azure("mine"), &messages).await;
    assert_eq!((has(&other, "enc-rs_"), has(&other, "fc_"), has(&other, "phase")), (0, 0, 0));
    // The conversation itself is sent.
    assert_eq!(
        (has(&other, "One more."), has(&other, "function_call\""), has(&other, "output\"")),
        (1, 4, 4)
    );
}

#[tokio::test]
async fn sends_replies_of_another_model_as_plain_messages() {
    let message = AssistantMessage::text("Let me see.");
    let message = message.with_tool_calls([ToolCall::new("x", "get_tide", r#"{"port": "Brest"}"#)]);
    let other = ScriptedModel::new().replies(ChatResponse::new(message)).says("Six.");
    let answer = Agent::builder(other).tools(tools![get_tide]).build().unwrap().ask("When?").await.unwrap();
    let items = continued_input(Endpoint::openai(), answer.new_messages()).await;
    let kinds: Vec<_> = items.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "message", "function_call", "function_call_output", "message", "message"]);
    assert_eq!(items[2]["call_id"], items[3]["call_id"]);
}

/// The provider compacts by itself if an extra field asks for it. What it returns goes back unchanged, in its place.
#[tokio::test]
async fn compactions_of_the_provider_go_back() {
    let compaction = json!({ "id": "cmp_1", "type": "compaction", "encrypted_content": "state" });
    let tide = call("call_a", "get_tide", r#"{"port": "Brest"}"#);
    let turns = [vec![compaction.clone(), tide.clone()], vec![text_message("At six.", "final_answer")]];
    for way in WAYS {
        let (answer, bodies) = sent(&turns, way, |model| {
            let threshold = json!([{ "type": "compaction", "compact_threshold": 1_000 }]);
            agent(model).options(ModelOptions::default().with_extra("context_management", threshold))
        })
        .await;
        assert_eq!(answer.text(), "At six.");
        let body: Value = serde_json::from_str(&bodies[1]).unwrap();
        assert_eq!(body["context_management"][0]["compact_threshold"], 1_000);
        let sent = body["input"].as_array().unwrap();
        let at = sent.iter().position(|item| *item == compaction).unwrap();
        assert_eq!(sent[at + 1], tide, "{way:?}");
    }
}
