//! The corpus of what servers really send, read by the client over HTTP.
//!
//! Each case is a body, byte for byte, and what is expected of it: see `wire/README.md`.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use support::RawServer;
use tool_core::{ChatModel, ChatRequest, ChatResponse, Delta, FinishReason, Message, ModelError, Usage};
use tool_openai::OpenAi;

struct Case {
    name: String,
    body: Vec<u8>,
    expected: Value,
}

/// The cases of a folder that are about Chat Completions.
fn cases(folder: &str, extension: &str) -> Vec<Case> {
    let files = fs::read_dir(Path::new("wire").join(folder)).unwrap().map(|file| file.unwrap().path());
    let is_body = |file: &PathBuf| {
        file.to_str().unwrap().ends_with(extension) && !file.to_str().unwrap().contains(".expected.")
    };
    let mut cases: Vec<_> = files
        .filter(is_body)
        .map(|file| {
            let expected = fs::read_to_string(file.with_extension("expected.json")).unwrap();
            Case {
                name: file.display().to_string(),
                body: fs::read(&file).unwrap(),
                expected: serde_json::from_str(&expected).unwrap(),
            }
        })
        .filter(|case| case.expected["api"] == "chat_completions")
        .collect();
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    cases
}

fn request() -> ChatRequest<'static> {
    ChatRequest::new([Message::user("When is high tide?")])
}

async fn stream(base_url: String) -> (Vec<Delta>, Result<ChatResponse, ModelError>) {
    let model = OpenAi::builder().base_url(base_url).build().unwrap().chat_model("m");
    let request = request();
    let mut deltas = model.stream(&request);
    let mut pieces = Vec::new();
    while let Some(delta) = deltas.next().await {
        match delta {
            Ok(Delta::Done(response)) => {
                assert!(deltas.next().await.is_none(), "there is nothing behind the end");
                return (pieces, Ok(response));
            }
            Ok(piece) => pieces.push(piece),
            Err(error) => return (pieces, Err(error)),
        }
    }
    panic!("the stream ended without an end");
}

fn check(case: &Case, outcome: Result<ChatResponse, ModelError>) {
    let Case { name, expected, .. } = case;
    match (expected["outcome"].as_str().unwrap(), outcome) {
        ("complete", Ok(response)) => {
            check_message(name, expected, &response);
            let reason = expected["finish_reason"].as_str();
            let (has_reason, has_calls) = (reason.is_some(), !response.message.tool_calls.is_empty());
            let expected_reason = match reason {
                Some("length") => FinishReason::Length,
                Some("content_filter") => FinishReason::ContentFilter,
                Some("tool_calls") => FinishReason::ToolCalls,
                None if has_calls => FinishReason::ToolCalls,
                Some("stop") | None => FinishReason::Stop,
                Some(other) => FinishReason::Other(other.into()),
            };
            assert_eq!(response.finish_reason, expected_reason, "{name} {has_reason}");
            check_usage(name, &expected["usage"], response.usage);
            let runs_tools = has_calls && !response.finish_reason.is_cut_short();
            assert_eq!(json!(runs_tools), expected["run_tools"], "{name}");
        }
        ("incomplete", Err(error)) => {
            let error = error.downcast_ref::<tool_openai::Error>().unwrap();
            assert!(error.is_incomplete(), "{name}: {error}");
            check_message(name, expected, error.partial().unwrap());
        }
        ("error", Err(error)) => {
            let error = error.downcast_ref::<tool_openai::Error>().unwrap();
            let told = &expected["error"];
            assert_eq!(json!(error.message()), told["message"], "{name}");
            assert_eq!(json!(error.error_type()), told["type"], "{name}");
            assert_eq!(json!(error.code()), told["code"], "{name}");
            if let Some(status) = expected["http"]["status"].as_u64().filter(|status| *status != 200) {
                assert_eq!(error.status().map(u64::from), Some(status), "{name}");
            }
            let id = expected["http"]["headers"]["x-request-id"].as_str();
            assert_eq!(error.request_id(), id, "{name}");
        }
        (outcome, other) => panic!("{name}: expected {outcome}, got {other:?}"),
    }
}

fn check_message(name: &str, expected: &Value, response: &ChatResponse) {
    let message = &response.message;
    assert_eq!(message.text, expected["content"].as_str().unwrap_or_default(), "{name}");
    assert_eq!(json!(message.refusal), expected["refusal"], "{name}");
    assert_eq!(json!(message.reasoning), expected["reasoning"], "{name}");
    let calls = expected["tool_calls"].as_array().unwrap();
    assert_eq!(message.tool_calls.len(), calls.len(), "{name}");
    let mut ids = std::collections::HashSet::new();
    for (call, expected) in message.tool_calls.iter().zip(calls) {
        assert_eq!(call.name, expected["name"], "{name}");
        assert_eq!(call.arguments, expected["arguments"], "{name}");
        match expected["id"].as_str() {
            Some(id) => assert_eq!(call.id, id, "{name}"),
            None => assert!(!call.id.is_empty(), "{name}: a call without an id is given one"),
        }
        assert!(ids.insert(&call.id), "{name}: ids differ");
    }
}

fn check_usage(name: &str, expected: &Value, usage: Option<Usage>) {
    let told = usage.map(|usage| {
        json!({
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
            "cached_tokens": usage.cached_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
        })
    });
    assert_eq!(json!(told), *expected, "{name}");
}

/// What the pieces say is what the whole says.
fn check_pieces(name: &str, pieces: &[Delta], response: &ChatResponse) {
    let (mut text, mut calls) = (String::new(), Vec::new());
    for piece in pieces {
        match piece {
            Delta::Text(more) => text.push_str(more),
            Delta::ToolCall { index, id, name: tool } => {
                assert_eq!(*index, calls.len(), "{name}");
                calls.push((id.clone(), tool.clone(), String::new()));
            }
            Delta::Arguments { index, text } => calls[*index].2.push_str(text),
            _ => {}
        }
    }
    assert_eq!(text, response.message.text, "{name}");
    let told = response.message.tool_calls.iter();
    let mut told: Vec<_> =
        told.map(|call| (call.id.clone(), call.name.clone(), call.arguments.clone())).collect();
    told.sort();
    calls.sort();
    assert_eq!(calls, told, "{name}");
}

#[tokio::test]
async fn every_stream_of_the_corpus() {
    let cases = cases("streams", ".sse");
    assert!(cases.len() >= 17, "the corpus is here");
    for case in cases {
        let server =
            RawServer::answering("200 OK", &[("content-type", "text/event-stream")], &case.body).await;
        let (pieces, outcome) = stream(server.base_url()).await;
        if let Ok(response) = &outcome {
            check_pieces(&case.name, &pieces, response);
        }
        check(&case, outcome);
    }
}

#[tokio::test]
async fn an_id_behind_the_name_makes_no_second_call() {
    let call =
        |call: &str| format!(r#"data: {{"choices":[{{"delta":{{"tool_calls":[{call}]}}}}]}}"#) + "\n\n";
    let body = call(r#"{"index":0,"function":{"name":"get_tide"}}"#)
        + &call(r#"{"index":0,"id":"call_1","function":{"arguments":"{}"}}"#)
        + "data: [DONE]\n\n";
    let server =
        RawServer::answering("200 OK", &[("content-type", "text/event-stream")], body.as_bytes()).await;
    let (pieces, outcome) = stream(server.base_url()).await;
    let response = outcome.unwrap();
    check_pieces("an id behind the name", &pieces, &response);
    assert_eq!(response.message.tool_calls.len(), 1);
    assert_eq!(response.message.tool_calls[0].arguments, "{}");
}

#[tokio::test]
async fn every_stream_again_in_small_pieces() {
    for case in cases("streams", ".sse") {
        let head = support::whole_answer("200 OK", &[("content-type", "text/event-stream")], b"");
        // Cuts of many lengths, in the middle of lines, of characters and of line ends.
        let mut pieces = vec![head];
        let mut rest = &case.body[..];
        for length in (1..14).cycle() {
            let (piece, more) = rest.split_at(length.min(rest.len()));
            pieces.push(piece.to_vec());
            rest = more;
            if rest.is_empty() {
                break;
            }
        }
        let server = RawServer::start(pieces, Duration::from_nanos(1)).await;
        check(&case, stream(server.base_url()).await.1);
    }
}

#[tokio::test]
async fn every_whole_response_of_the_corpus() {
    let cases = cases("responses", ".json");
    assert!(cases.len() >= 18, "the corpus is here");
    for case in cases {
        let status = case.expected["http"]["status"].to_string() + " Status";
        let headers = case.expected["http"]["headers"].as_object().unwrap();
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| (&**name, value.as_str().unwrap())).collect();
        let server = RawServer::answering(&status, &headers, &case.body).await;
        let model = OpenAi::builder().base_url(server.base_url()).build().unwrap().chat_model("m");
        check(&case, model.chat(&request()).await);
        // A server that does not stream, though it was asked to.
        check(&case, stream(server.base_url()).await.1);
    }
}
