//! Runs of agents: tools, pauses, thinking, caches.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use serde_json::{Value, json};
use tests::support::sampling::{cases, size};
use tests::support::{RawServer, whole_answer};
use tool_anthropic::{Anthropic, Endpoint, ErrorKind, HostedTool, ReplyDetails, Thinking};
use tool_core::agent::Compaction;
use tool_core::memory::{InMemoryStore, Window};
use tool_core::model::{AssistantMessage, ChatRequest, FinishReason};
use tool_core::{Agent, ChatMemory, ChatModel, Event, Message, ModelOptions, ToolSet, tool, tools};
use tool_openai::OpenAi;

use super::{MODEL, answering, bodies, builder, model};
use crate::responses::endpoint::{event_stream, json_answer, streamed};

/// Returns the time of high tide.
#[tool]
fn get_tide(port: String, hours: Option<u32>) -> Result<String, String> {
    match &*port {
        "Brest" => Ok(format!("14:20, {} hours ahead", hours.unwrap_or(6))),
        other => Err(format!("no such port: {other}")),
    }
}

pub(super) fn reply(content: Value, stop_reason: &str) -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": content,
        "stop_reason": stop_reason, "stop_sequence": null, "stop_details": null,
        "usage": { "input_tokens": 10, "output_tokens": 5, "server_tool_use": { "web_search_requests": 1, "web_fetch_requests": 0 } },
    })
}

/// Returns the reply as a stream, one event per block.
fn as_stream(reply: &Value) -> Vec<u8> {
    let mut start = reply.clone();
    (start["content"], start["stop_reason"]) = (json!([]), Value::Null);
    let mut events = vec![json!({ "type": "message_start", "message": start })];
    for (index, block) in reply["content"].as_array().unwrap().iter().enumerate() {
        events.push(json!({ "type": "content_block_start", "index": index, "content_block": block }));
        events.push(json!({ "type": "content_block_stop", "index": index }));
    }
    let delta = json!({ "stop_reason": reply["stop_reason"], "stop_sequence": null, "stop_details": null });
    events.push(json!({ "type": "message_delta", "delta": delta, "usage": reply["usage"] }));
    events.push(json!({ "type": "message_stop" }));
    let lines =
        events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()));
    event_stream(lines.collect::<String>().as_bytes())
}

async fn scripted(replies: &[Value], is_streamed: bool) -> RawServer {
    let answer = if is_streamed { as_stream } else { json_answer };
    RawServer::answering_in_turn(replies.iter().map(answer).collect()).await
}

pub(super) fn thinking() -> Value {
    json!({ "type": "thinking", "thinking": "Hm.", "signature": "c2ln" })
}

pub(super) fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn user(parts: Value) -> Value {
    json!({ "role": "user", "content": parts })
}

fn assistant(parts: &Value) -> Value {
    json!({ "role": "assistant", "content": parts })
}

#[tokio::test]
async fn an_agent_calls_tools() {
    let call = |id: &str, port: &str| json!({ "type": "tool_use", "id": id, "name": "get_tide", "input": { "port": port } });
    let calls = json!([thinking(), text("Looking."), call("toolu_1", "Brest"), call("toolu_2", "Atlantis")]);
    let replies = [reply(calls.clone(), "tool_use"), reply(json!([text("At 14:20.")]), "end_turn")];
    for is_streamed in [false, true] {
        let server = scripted(&replies, is_streamed).await;
        let agent =
            Agent::builder(model(&server)).instructions("Be brief.").tools(tools![get_tide]).build().unwrap();
        let ask = agent.ask("When is high tide?");
        let answer = if is_streamed {
            let (mut events, mut reasoning, mut answer) = (ask.stream(), String::new(), None);
            while let Some(event) = events.next().await {
                match event.unwrap() {
                    Event::Reasoning(more) => reasoning.push_str(&more),
                    Event::Done(done) => answer = Some(done),
                    _ => {}
                }
            }
            assert_eq!(reasoning, "Hm.");
            answer.unwrap()
        } else {
            ask.await.unwrap()
        };
        assert_eq!(answer.text(), "At 14:20.");
        let body: Value = serde_json::from_str(&bodies(&server)[1]).unwrap();
        let result = |id: &str, content: &str| json!({ "type": "tool_result", "tool_use_id": id, "content": [text(content)] });
        let mut failed = result("toolu_2", "no such port: Atlantis");
        failed["is_error"] = true.into();
        let expected = json!([
            user(json!([text("When is high tide?")])),
            assistant(&calls),
            user(json!([result("toolu_1", "14:20, 6 hours ahead"), failed])),
        ]);
        assert_eq!(body["messages"], expected);
        assert_eq!(body["system"], json!([text("Be brief.")]));
    }
}

#[tokio::test]
async fn a_typed_answer_is_constrained() {
    #[derive(Debug, PartialEq, serde::Deserialize, schemars::JsonSchema)]
    struct Tide {
        #[schemars(range(min = 0, max = 23))]
        hour: u8,
        port: Option<String>,
    }
    let server = scripted(&[reply(json!([text(r#"{"hour":14,"port":null}"#)]), "end_turn")], false).await;
    let agent = Agent::builder(model(&server)).tools(tools![get_tide]).build().unwrap();
    let answer = agent.ask("When?").answer_as::<Tide>().await.unwrap();
    assert_eq!(answer, Tide { hour: 14, port: None });
    let body: Value = serde_json::from_str(&bodies(&server)[0]).unwrap();
    let schema = &body["output_config"]["format"]["schema"];
    let hour = json!({ "type": "integer", "description": "minimum: 0, maximum: 23" });
    assert_eq!((&schema["properties"]["hour"], &schema["required"]), (&hour, &json!(["hour", "port"])));
    assert_eq!(body.get("tool_choice"), None);
}

/// Typed answers that cannot be constrained use a tool, whose call is not required, because newer models refuse that.
#[tokio::test]
async fn a_typed_answer_with_citations_uses_a_tool() {
    let call =
        json!({ "type": "tool_use", "id": "toolu_1", "name": "final_answer", "input": { "answer": 14 } });
    let server = scripted(&[reply(json!([call]), "tool_use")], false).await;
    let agent = Agent::builder(model(&server).citations(true)).build().unwrap();
    let answer = agent.ask("When?").answer_as::<u8>().await;
    let body: Value = serde_json::from_str(&bodies(&server)[0]).unwrap();
    assert_eq!(answer.unwrap(), 14, "{body:#}");
    assert_eq!((body.get("output_config"), body.get("tool_choice")), (None, None));
}

fn search(id: &str) -> Value {
    json!({ "type": "server_tool_use", "id": id, "name": "web_search", "input": { "query": "tide" } })
}

fn found(id: &str) -> Value {
    let result = json!({ "type": "web_search_result", "title": "Tides", "url": "https://example.org", "encrypted_content": "ZW5j" });
    json!({ "type": "web_search_tool_result", "tool_use_id": id, "content": [result] })
}

#[tokio::test]
async fn a_paused_reply_is_continued() {
    let first = json!([thinking(), search("srvtoolu_1")]);
    let second = json!([found("srvtoolu_1"), text("At "), search("srvtoolu_2")]);
    let third = json!([found("srvtoolu_2"), text("14:20.")]);
    let replies = [reply(first.clone(), "pause_turn"), reply(second, "pause_turn"), reply(third, "end_turn")];
    let whole = json!([
        thinking(),
        search("srvtoolu_1"),
        found("srvtoolu_1"),
        text("At "),
        search("srvtoolu_2"),
        found("srvtoolu_2"),
        text("14:20."),
    ]);
    for is_streamed in [false, true] {
        let server = scripted(&replies, is_streamed).await;
        let model = model(&server).hosted_tool(HostedTool::web_search());
        let request = ChatRequest::new([Message::user("When?")]);
        let response = if is_streamed {
            let (deltas, outcome) = streamed(&model, &request).await;
            assert_eq!(format!("{deltas:?}"), "[Reasoning(3 bytes), Text(3 bytes), Text(6 bytes)]");
            outcome.unwrap()
        } else {
            model.chat(&request).await.unwrap()
        };
        assert_eq!((&*response.message.text, &response.finish_reason), ("At 14:20.", &FinishReason::Stop));
        let usage = response.usage.unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens, usage.web_searches), (30, 15, Some(3)));
        let details = ReplyDetails::from_message(&response.message).unwrap();
        assert_eq!(details.hosted_tool_uses["web_search_requests"], 3);
        assert_eq!(json!(details.blocks), whole);
        let sent = bodies(&server);
        let second: Value = serde_json::from_str(&sent[1]).unwrap();
        assert_eq!(second["messages"], json!([user(json!([text("When?")])), assistant(&first)]));
        // The whole reply goes back in one message.
        let next = ChatRequest::new([
            Message::user("When?"),
            Message::Assistant(response.message),
            Message::user("Sure?"),
        ]);
        drop(model.chat(&next).await);
        let next: Value = serde_json::from_str(&bodies(&server)[3]).unwrap();
        assert_eq!(next["messages"][1], assistant(&whole));
    }
}

#[tokio::test]
async fn pauses_are_bounded() {
    let server = answering(json_answer(&reply(json!([search("srvtoolu_1")]), "pause_turn"))).await;
    let model = model(&server).hosted_tool(HostedTool::web_search()).max_pauses(2);
    let response = model.chat(&ChatRequest::new([Message::user("When?")])).await.unwrap();
    assert_eq!(response.finish_reason, FinishReason::Other("pause_turn".into()));
    assert_eq!(server.requests().len(), 3);
}

/// A client's call in a paused reply is executed, and the search goes on in the next request.
#[tokio::test]
async fn a_paused_reply_with_calls_continues_with_their_results() {
    let call =
        json!({ "type": "tool_use", "id": "toolu_1", "name": "get_tide", "input": { "port": "Brest" } });
    let first = json!([search("srvtoolu_1"), call]);
    let replies = [
        reply(first.clone(), "pause_turn"),
        reply(json!([found("srvtoolu_1"), text("At 14:20.")]), "end_turn"),
    ];
    for is_streamed in [false, true] {
        let server = scripted(&replies, is_streamed).await;
        let model = model(&server).hosted_tool(HostedTool::web_search());
        let agent = Agent::builder(model).tools(tools![get_tide]).build().unwrap();
        let ask = agent.ask("When?");
        let answer = if is_streamed {
            let mut events = ask.stream();
            loop {
                if let Event::Done(answer) = events.next().await.unwrap().unwrap() {
                    break answer;
                }
            }
        } else {
            ask.await.unwrap()
        };
        assert_eq!(answer.text(), "At 14:20.");
        let body: Value = serde_json::from_str(&bodies(&server)[1]).unwrap();
        let result = json!({ "type": "tool_result", "tool_use_id": "toolu_1", "content": [text("14:20, 6 hours ahead")] });
        let expected = json!([user(json!([text("When?")])), assistant(&first), user(json!([result]))]);
        assert_eq!(body["messages"], expected);
    }
}

/// The container in which the provider executed code is continued.
#[tokio::test]
async fn a_container_goes_back() {
    let mut first = reply(json!([text("Computed.")]), "end_turn");
    first["container"] = json!({ "id": "container_1", "expires_at": "2026-11-24T00:00:00Z", "skills": null });
    for is_streamed in [false, true] {
        let server = scripted(&[first.clone(), first.clone()], is_streamed).await;
        let model = model(&server).hosted_tool(HostedTool::code_execution());
        let mut messages = vec![Message::user("Compute.")];
        for expected in [None, Some("container_1")] {
            let request = ChatRequest::new(messages.clone());
            let response = if is_streamed {
                streamed(&model, &request).await.1.unwrap()
            } else {
                model.chat(&request).await.unwrap()
            };
            let body: Value = serde_json::from_str(bodies(&server).last().unwrap()).unwrap();
            assert_eq!(body.get("container").and_then(Value::as_str), expected);
            messages.extend([Message::Assistant(response.message), Message::user("Again.")]);
        }
    }
}

/// The API does not return a long reply at once.
#[tokio::test]
async fn a_long_reply_is_streamed() {
    let server = scripted(&[reply(json!([text("Long.")]), "end_turn")], true).await;
    let options = ModelOptions::default().with_max_output_tokens(64_000);
    let request = ChatRequest::new([Message::user("Write.")]).with_options(options);
    let response = model(&server).chat(&request).await.unwrap();
    assert_eq!(response.message.text, "Long.");
    assert!(bodies(&server)[0].contains(r#""stream":true"#));
}

#[tokio::test]
async fn an_overloaded_server_is_asked_again() {
    let error = json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" }, "request_id": "req_1" });
    let headers = [
        ("content-type", "application/json"),
        ("retry-after-ms", "1"),
        ("anthropic-ratelimit-requests-remaining", "3"),
    ];
    let overloaded = whole_answer("529 Overloaded", &headers, error.to_string().as_bytes());
    let good = json_answer(&reply(json!([text("Good.")]), "end_turn"));
    let server = RawServer::answering_in_turn(vec![overloaded.clone(), good, overloaded]).await;
    let (retries, remaining) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let (seen_retries, seen_limits) = (Arc::clone(&retries), Arc::clone(&remaining));
    let anthropic = builder(&server)
        .max_retries(1)
        .on_retry(move |retry| seen_retries.lock().unwrap().push((retry.number, retry.delay.as_millis())))
        .on_rate_limits(move |limits| seen_limits.lock().unwrap().push(limits.requests.remaining))
        .build()
        .unwrap();
    let request = ChatRequest::new([Message::user("When?")]);
    assert_eq!(anthropic.chat_model(MODEL).chat(&request).await.unwrap().message.text, "Good.");
    assert_eq!(*retries.lock().unwrap(), [(1, 1)]);
    assert_eq!(*remaining.lock().unwrap(), [Some(3)]);
    let error = model(&server).chat(&request).await.unwrap_err();
    let error = error.downcast_ref::<tool_anthropic::Error>().unwrap();
    assert_eq!((error.kind(), error.request_id()), (ErrorKind::Overloaded, Some("req_1")));
    let url = format!("{}/messages", server.base_url());
    let expected = format!("POST {url} failed with status 529, overloaded_error: Overloaded (request req_1)");
    assert_eq!(error.to_string(), expected);
}

/// A conversation goes from one provider to another and back, and is stored in between.
#[tokio::test]
async fn a_conversation_changes_the_provider() {
    let calls = json!([thinking(), { "type": "tool_use", "id": "toolu_1", "name": "get_tide", "input": { "port": "Brest" } }]);
    let server = scripted(&[reply(calls.clone(), "tool_use")], false).await;
    let claude = model(&server);
    let mut messages = vec![Message::user("When?")];
    let response = claude.chat(&ChatRequest::new(messages.clone())).await.unwrap();
    let call = response.message.tool_calls[0].clone();
    messages.extend([Message::Assistant(response.message), Message::tool_text(&call, "14:20")]);
    let messages: Vec<Message> = serde_json::from_str(&serde_json::to_string(&messages).unwrap()).unwrap();

    let other = json!({ "choices": [{ "message": { "role": "assistant", "content": "At 14:20." } }] });
    let other_server = answering(json_answer(&other)).await;
    let openai = OpenAi::builder().base_url(other_server.base_url()).build().unwrap().chat_model("m");
    let response = openai.chat(&ChatRequest::new(messages.clone())).await.unwrap();
    let body = bodies(&other_server).pop().unwrap();
    assert!(body.contains(r#""toolu_1""#) && !body.contains("c2ln"), "{body}");

    let mut messages = messages;
    messages.extend([Message::Assistant(response.message), Message::user("Sure?")]);
    // Thinking is still bound to what precedes it.
    for (model, has_thinking) in [(MODEL, true), ("claude-opus-5-5", false)] {
        let options = ModelOptions::default().with_model(model);
        drop(claude.chat(&ChatRequest::new(messages.clone()).with_options(options)).await);
        let body: Value = serde_json::from_str(&bodies(&server).pop().unwrap()).unwrap();
        let skipped = usize::from(!has_thinking);
        assert_eq!(
            body["messages"][1]["content"].as_array().unwrap()[..],
            calls.as_array().unwrap()[skipped..]
        );
        assert_eq!(body["messages"][3], assistant(&json!([text("At 14:20.")])));
    }
}

/// Blocks go back to the server that wrote them alone, although both have the name of the API.
#[tokio::test]
async fn a_conversation_changes_the_server() {
    let server = scripted(&[reply(json!([thinking(), text("At 14:20.")]), "end_turn")], false).await;
    let client = |server: &RawServer| {
        Anthropic::builder().base_url(server.base_url()).build().unwrap().chat_model(MODEL)
    };
    let response = client(&server).chat(&ChatRequest::new([Message::user("When?")])).await.unwrap();
    let messages = [Message::user("When?"), Message::Assistant(response.message), Message::user("Sure?")];
    let other = answering(json_answer(&reply(json!([text("Yes.")]), "end_turn"))).await;
    client(&other).chat(&ChatRequest::new(messages.clone())).await.unwrap();
    drop(client(&server).chat(&ChatRequest::new(messages)).await);
    let content = |server: &RawServer| {
        let body: Value = serde_json::from_str(&bodies(server).pop().unwrap()).unwrap();
        body["messages"][1]["content"].clone()
    };
    assert_eq!(content(&other), json!([text("At 14:20.")]));
    assert_eq!(content(&server), json!([thinking(), text("At 14:20.")]));
}

/// A conversation starts with another provider, goes to Claude, and back: each reads its own reasoning, and none of the other's.
#[tokio::test]
async fn a_conversation_comes_from_another_provider() {
    let reasoning = json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "Z3B0" });
    let call = json!({ "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "get_tide", "arguments": "{\"port\":\"Brest\"}" });
    let output =
        json!({ "id": "resp_1", "object": "response", "status": "completed", "output": [reasoning, call] });
    let other_server = answering(json_answer(&output)).await;
    let openai = OpenAi::builder().base_url(other_server.base_url()).build().unwrap().responses_model("m");
    let mut messages = vec![Message::user("When?")];
    let response = openai.chat(&ChatRequest::new(messages.clone())).await.unwrap();
    let call = response.message.tool_calls[0].clone();
    messages.extend([Message::Assistant(response.message), Message::tool_text(&call, "14:20")]);

    let server = scripted(&[reply(json!([thinking(), text("At 14:20.")]), "end_turn")], false).await;
    let response = model(&server).chat(&ChatRequest::new(messages.clone())).await.unwrap();
    let body: Value = serde_json::from_str(&bodies(&server)[0]).unwrap();
    let sent_call =
        json!({ "type": "tool_use", "id": "call_1", "name": "get_tide", "input": { "port": "Brest" } });
    assert_eq!(body["messages"][1], assistant(&json!([sent_call])));
    assert!(!body.to_string().contains("Z3B0"), "{body}");

    messages.extend([Message::Assistant(response.message), Message::user("Sure?")]);
    openai.chat(&ChatRequest::new(messages)).await.unwrap();
    let body = bodies(&other_server).pop().unwrap();
    assert!(body.contains("Z3B0") && body.contains("At 14:20.") && !body.contains("c2ln"), "{body}");
}

/// The window of a memory slides over a stored conversation. Thinking goes back until the start is another one.
#[tokio::test]
async fn a_memory_window_removes_thinking() {
    for (limit, expected) in [(100, [0, 1, 2, 3]), (4, [0, 1, 2, 0]), (2, [0, 1, 0, 0])] {
        let server = answering(json_answer(&reply(json!([thinking(), text("So.")]), "end_turn"))).await;
        let store = Arc::new(InMemoryStore::new());
        let mut counts = Vec::new();
        for question in ["One?", "Two?", "Three?", "Four?"] {
            // Each question is asked by another process.
            let memory = ChatMemory::new(Arc::clone(&store)).window(Window::messages(limit));
            let agent = Agent::builder(model(&server)).memory(memory).build().unwrap();
            agent.ask(question).conversation("1").await.unwrap();
            counts.push(bodies(&server).last().unwrap().matches(r#""signature""#).count());
        }
        assert_eq!(counts, expected, "{limit} messages");
    }
}

/// A compacted run has another start: thinking behind it is not sent, and during calls a run is compacted only if it has to be.
#[tokio::test]
async fn compaction_removes_thinking() {
    #[tool]
    fn read_table(year: u32) -> String {
        format!("{year} ").repeat(800)
    }
    let turns: usize = 6;
    let call = |year| {
        let call = json!({ "type": "tool_use", "id": format!("toolu_{year}"), "name": "read_table", "input": { "year": year } });
        json_answer(&reply(json!([thinking(), call]), "tool_use"))
    };
    let too_long = json!({ "type": "error", "error": { "type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum" } });
    let headers = [("content-type", "application/json")];
    let refused = whole_answer("400 Bad Request", &headers, too_long.to_string().as_bytes());
    let answer = json_answer(&reply(json!([text("Done.")]), "end_turn"));
    let answers = (0..turns).map(call).chain([refused, answer]).collect();
    let server = RawServer::answering_in_turn(answers).await;
    let compaction = Compaction::when_it_pays().at_tokens(1).keep_recent_tokens(1_000);
    let mut endpoint = Endpoint::anthropic();
    endpoint.supports_compaction = false;
    let model = builder(&server).endpoint(endpoint).build().unwrap().chat_model(MODEL);
    let agent = Agent::builder(model).tools(tools![read_table]).compaction(compaction).build().unwrap();
    assert_eq!(agent.ask("Read all").await.unwrap().text(), "Done.");
    let thoughts =
        bodies(&server).iter().map(|body| body.matches(r#""signature""#).count()).collect::<Vec<_>>();
    let expected: Vec<_> = (0..=turns).chain([0]).collect();
    assert_eq!(thoughts, expected);
    let compacted: Vec<_> =
        bodies(&server).iter().map(|body| body.contains("was removed to save room")).collect();
    assert_eq!(compacted.iter().position(|compacted| *compacted), Some(turns + 1));
}

/// A model that does not think rejects earlier thinking in front of results.
#[tokio::test]
async fn switching_thinking_off_removes_it() {
    let call =
        json!({ "type": "tool_use", "id": "toolu_1", "name": "get_tide", "input": { "port": "Brest" } });
    let server = answering(json_answer(&reply(json!([thinking(), call]), "tool_use"))).await;
    let thinks = model(&server).thinking(Thinking::adaptive());
    let mut messages = vec![Message::user("When?")];
    let response = thinks.chat(&ChatRequest::new(messages.clone())).await.unwrap();
    let call = response.message.tool_calls[0].clone();
    messages.extend([Message::Assistant(response.message), Message::tool_text(&call, "14:20")]);
    for (model, has_thinking) in [(thinks.clone(), true), (thinks.thinking(Thinking::off()), false)] {
        model.chat(&ChatRequest::new(messages.clone())).await.unwrap();
        assert_eq!(bodies(&server).last().unwrap().contains(r#""signature""#), has_thinking);
    }
}

/// Each agent reads its own thinking; the instructions of another agent are another start.
#[tokio::test]
async fn agents_hand_over_and_ask_each_other() {
    let call = |id: &str, name: &str, input: Value| json!([thinking(), { "type": "tool_use", "id": id, "name": name, "input": input }]);
    let has_thinking = |body: &str| body.contains(r#""signature""#);
    let pilot = |server: &RawServer| {
        Agent::builder(model(server))
            .instructions("You are a pilot.")
            .tools(tools![get_tide])
            .build()
            .unwrap()
    };
    let replies = [
        reply(call("toolu_1", "to_pilot", json!({})), "tool_use"),
        reply(call("toolu_2", "get_tide", json!({ "port": "Brest" })), "tool_use"),
        reply(json!([text("At 14:20.")]), "end_turn"),
    ];
    let server = scripted(&replies, false).await;
    let agent = Agent::builder(model(&server))
        .instructions("You are a clerk.")
        .handoff_to("to_pilot", "Hands over to the pilot", &pilot(&server))
        .build()
        .unwrap();
    assert_eq!(agent.ask("When?").await.unwrap().text(), "At 14:20.");
    let sent = bodies(&server);
    assert_eq!(sent.iter().map(|body| has_thinking(body)).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!(sent[2].matches(r#""signature""#).count(), 1, "{}", sent[2]);

    let replies = [
        reply(call("toolu_1", "pilot", json!({ "question": "Tide?" })), "tool_use"),
        reply(call("toolu_1", "get_tide", json!({ "port": "Brest" })), "tool_use"),
        reply(json!([text("At 14:20.")]), "end_turn"),
        reply(json!([text("Sail at 14:20.")]), "end_turn"),
    ];
    let server = scripted(&replies, false).await;
    let tool = pilot(&server).as_tool("pilot", "Answers questions about tides");
    let agent = Agent::builder(model(&server)).tools(tool).build().unwrap();
    assert_eq!(agent.ask("When?").await.unwrap().text(), "Sail at 14:20.");
    let has: Vec<_> = bodies(&server).iter().map(|body| has_thinking(body)).collect();
    assert_eq!(has, [false, false, true, true]);
}

/// A run goes from one provider to another and back, by handoffs. Each reads all calls and results, and only its own reasoning.
#[tokio::test]
async fn agents_of_two_providers_hand_over() {
    let call = |id: &str, name: &str| json!([thinking(), { "type": "tool_use", "id": id, "name": name, "input": {} }]);
    let claude_server = scripted(
        &[reply(call("toolu_1", "to_pilot"), "tool_use"), reply(json!([text("Sail at 14:20.")]), "end_turn")],
        false,
    )
    .await;
    let output = |items: Value| {
        json_answer(&json!({ "id": "resp_1", "object": "response", "status": "completed", "output": items }))
    };
    let reasoning = json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "Z3B0" });
    let function = |id: &str, name: &str, arguments: &str| json!({ "type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": name, "arguments": arguments });
    let openai_server = RawServer::answering_in_turn(vec![
        output(json!([reasoning, function("call_1", "get_tide", r#"{"port":"Brest"}"#)])),
        output(json!([function("call_2", "to_captain", "{}")])),
    ])
    .await;
    let openai = OpenAi::builder().base_url(openai_server.base_url()).build().unwrap().responses_model("m");
    let captain = Agent::builder(model(&claude_server).thinking(Thinking::budget(2000)))
        .instructions("You are the captain.")
        .build()
        .unwrap();
    let pilot = Agent::builder(openai)
        .instructions("You are the pilot.")
        .tools(tools![get_tide])
        .handoff_to("to_captain", "Hands over to the captain", &captain)
        .build()
        .unwrap();
    let clerk = Agent::builder(model(&claude_server))
        .instructions("You are a clerk.")
        .handoff_to("to_pilot", "Hands over to the pilot", &pilot)
        .build()
        .unwrap();
    assert_eq!(clerk.ask("When do we sail?").await.unwrap().text(), "Sail at 14:20.");

    let to_openai = bodies(&openai_server);
    assert!(to_openai.iter().all(|body| body.contains("toolu_1") && !body.contains("c2ln")), "{to_openai:?}");
    assert!(to_openai[1].contains("Z3B0"), "{}", to_openai[1]);
    let to_claude: Value = serde_json::from_str(&bodies(&claude_server)[1]).unwrap();
    assert!(
        !to_claude.to_string().contains("Z3B0") && !to_claude.to_string().contains("c2ln"),
        "{to_claude}"
    );
    let kinds = |message: &Value| {
        let block = &message["content"][0];
        let id = block["id"].as_str().or(block["tool_use_id"].as_str()).unwrap_or_default().to_owned();
        (block["type"].as_str().unwrap().to_owned(), id)
    };
    let found: Vec<_> = to_claude["messages"].as_array().unwrap().iter().map(kinds).collect();
    let expected = [
        ("text", ""),
        ("tool_use", "toolu_1"),
        ("tool_result", "toolu_1"),
        ("tool_use", "call_1"),
        ("tool_result", "call_1"),
        ("tool_use", "call_2"),
        ("tool_result", "call_2"),
    ];
    assert_eq!(found, expected.map(|(kind, id)| (kind.to_owned(), id.to_owned())));
    // The last call was made without thinking, so a budget would be rejected.
    assert_eq!(to_claude.get("thinking"), None);
}

/// A change of what a request starts with.
#[derive(Clone, Copy, Debug)]
enum Change {
    None,
    Window,
    Instructions,
    Tools,
    Model,
    Thinking,
    EditQuestion,
    EditReply,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        8 => Just(Change::None),
        1 => Just(Change::Window),
        1 => Just(Change::Instructions),
        1 => Just(Change::Tools),
        1 => Just(Change::Model),
        1 => Just(Change::Thinking),
        1 => Just(Change::EditQuestion),
        1 => Just(Change::EditReply),
    ]
}

/// What a request starts with, and what thinking is bound to.
#[derive(Clone, Debug, PartialEq)]
struct Conversation {
    model: usize,
    instructions: usize,
    has_tools: bool,
    is_thinking: bool,
    /// The texts of users' messages and replies, in turn.
    texts: Vec<String>,
}

impl Conversation {
    fn request(&self, replies: &[AssistantMessage]) -> ChatRequest<'static> {
        let mut replies = replies.iter();
        let mut messages = vec![Message::system(format!("Instructions {}.", self.instructions))];
        messages.extend(self.texts.iter().enumerate().map(|(index, text)| {
            if index % 2 == 0 { Message::user(text) } else { replies.next().unwrap().clone().into() }
        }));
        let tools = if self.has_tools { tools![get_tide] } else { ToolSet::default() };
        let options =
            ModelOptions::default().with_model(["claude-opus-5-5", "claude-sonnet-5-5"][self.model]);
        ChatRequest::new(messages).with_tools(&tools).with_options(options)
    }
}

proptest! {
    #![proptest_config(cases(24, 500))]

    /// Thinking is sent exactly with the replies after the last one that was written after another start.
    #[test]
    fn thinking_is_bound_to_its_prefix(changes in prop::collection::vec(change(), 1..10)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = answering(json_answer(&reply(json!([thinking(), text("So."), text(" ")]), "end_turn"))).await;
            let claude = model(&server);
            let mut conversation = Conversation { model: 0, instructions: 0, has_tools: false, is_thinking: false, texts: Vec::new() };
            // Each reply with all that preceded it.
            let mut replies: Vec<(AssistantMessage, Conversation)> = Vec::new();
            for (turn, change) in changes.into_iter().enumerate() {
                match change {
                    Change::None => {}
                    Change::Window if !replies.is_empty() => {
                        conversation.texts.drain(..2);
                        replies.remove(0);
                    }
                    Change::Instructions => conversation.instructions = (conversation.instructions + 1) % 2,
                    Change::Tools => conversation.has_tools = !conversation.has_tools,
                    Change::Model => conversation.model = 1 - conversation.model,
                    Change::Thinking => conversation.is_thinking = !conversation.is_thinking,
                    Change::EditQuestion if !replies.is_empty() => conversation.texts[0].push('!'),
                    Change::EditReply if !replies.is_empty() => {
                        replies[0].0.text.push('!');
                        conversation.texts[1].push('!');
                    }
                    _ => {}
                }
                conversation.texts.push(format!("Question {turn}?"));
                let messages: Vec<_> = replies.iter().map(|(reply, _)| reply.clone()).collect();
                let claude = if conversation.is_thinking { claude.clone().thinking(Thinking::adaptive()) } else { claude.clone() };
                let response = claude.chat(&conversation.request(&messages)).await.unwrap();
                let body: Value = serde_json::from_str(bodies(&server).last().unwrap()).unwrap();
                let sent = body["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "assistant");
                let sent: Vec<_> = sent.map(|message| message["content"][0]["type"] == "thinking").collect();
                let is_bound = |(index, (reply, prefix)): (usize, &(AssistantMessage, Conversation))| {
                    let now = Conversation { texts: conversation.texts[..2 * index + 1].to_vec(), ..conversation.clone() };
                    // A reply whose text was changed is written anew, and is bound to nothing.
                    (now == *prefix, reply.text == "So. ")
                };
                let bound: Vec<_> = replies.iter().enumerate().map(is_bound).collect();
                let start = bound.iter().rposition(|(is_bound, is_whole)| *is_whole && !is_bound).map_or(0, |last| last + 1);
                let expected: Vec<_> =
                    bound.iter().enumerate().map(|(index, (_, is_whole))| index >= start && *is_whole).collect();
                prop_assert_eq!(sent, expected);
                replies.push((response.message, conversation.clone()));
                conversation.texts.push("So. ".into());
            }
            Ok(())
        })?;
    }

    /// What precedes a cache point is the same, byte for byte, in the next request.
    #[test]
    fn the_start_of_a_request_is_cached(
        turns in prop::collection::vec((0..4_usize, any::<bool>()), 2..8),
        instructions in 0..200_usize,
        is_streamed in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let count = turns.len();
            let replies = turns.iter().enumerate().map(|(turn, (calls, has_thinking))| {
                let mut content: Vec<_> = has_thinking.then(thinking).into_iter().collect();
                content.push(text(&"Let me see. ".repeat(20)));
                let calls = if turn + 1 == count { 0 } else { calls + 1 };
                content.extend((0..calls).map(|call| {
                    let port = if call == 1 { "Atlantis" } else { "Brest" };
                    json!({ "type": "tool_use", "id": format!("toolu_{turn}_{call}"), "name": "get_tide", "input": { "port": port } })
                }));
                reply(content.into(), if calls == 0 { "end_turn" } else { "tool_use" })
            });
            let server = scripted(&replies.collect::<Vec<_>>(), is_streamed).await;
            let agent = Agent::builder(model(&server))
                .instructions("Sail carefully. ".repeat(instructions))
                .tools(tools![get_tide])
                .limits(|l| l.max_repeated_calls(100))
                .build()
                .unwrap();
            let ask = agent.ask("When is high tide?");
            if is_streamed {
                let mut events = ask.stream();
                while let Some(event) = events.next().await {
                    event.unwrap();
                }
            } else {
                ask.await.unwrap();
            }
            let bodies = bodies(&server);
            prop_assert_eq!(bodies.len(), count);
            for pair in bodies.windows(2) {
                let points: Vec<_> = pair[0].match_indices(r#","cache_control":"#).map(|(at, _)| at).collect();
                prop_assert!(points.len() <= 4);
                prop_assert!(instructions < 150 || points.len() >= 2, "{}", pair[0]);
                for point in points {
                    prop_assert!(pair[1].starts_with(&pair[0][..point]), "{}\n{}", pair[0], pair[1]);
                }
            }
            Ok(())
        })?;
    }
}

/// Turns of a run encode only new messages, and write the same as without the cache of the run.
#[tokio::test]
async fn a_restored_run_sends_the_same() {
    let call =
        json!({ "type": "tool_use", "id": "toolu_1", "name": "get_tide", "input": { "port": "Brest" } });
    let calls = |turn: usize| {
        let mut call = call.clone();
        call["id"] = format!("toolu_{turn}").into();
        reply(json!([thinking(), call]), "tool_use")
    };
    let count = size(5, 20);
    let replies: Vec<_> = (0..count).map(calls).chain([reply(json!([text("Done.")]), "end_turn")]).collect();
    let server = scripted(&replies, false).await;
    let agent = Agent::builder(model(&server))
        .tools(tools![get_tide])
        .limits(|l| l.max_repeated_calls(100).max_turns(50))
        .build()
        .unwrap();
    let answer = agent.ask("When?").await.unwrap();
    let sent = bodies(&server);
    let messages: Vec<Message> =
        serde_json::from_str(&serde_json::to_string(answer.new_messages()).unwrap()).unwrap();
    let restored = answering(json_answer(&replies[count])).await;
    for (turn, body) in sent.iter().enumerate() {
        let request = ChatRequest::new(&messages[..2 * turn + 1]).with_tools(&tools![get_tide]);
        model(&restored).chat(&request).await.unwrap();
        assert_eq!(bodies(&restored).last(), Some(body), "turn {turn}");
    }
}
