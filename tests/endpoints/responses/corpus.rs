//! The corpus of server behavior: see `wire/README.md`.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tool_core::model::{ChatRequest, ChatResponse, Delta, FinishReason, ModelError};
use tool_core::{ChatModel, Message, ToolCall, ToolOutput};
use tool_openai::ErrorKind;

use super::endpoint::{bodies, input, json_answer, model, streamed, unchecked_bodies};
use tests::support::sampling::size;
use tests::support::{RawServer, chunked_answer, whole_answer};

struct Case {
    name: String,
    body: Vec<u8>,
    expected: Value,
}

/// Returns the cases of a folder for this API.
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
        .filter(|case| case.expected["api"] == "responses")
        .collect();
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    cases
}

fn request() -> ChatRequest<'static> {
    ChatRequest::new([Message::user("When is high tide?")])
}

impl Case {
    fn answer(&self) -> Vec<u8> {
        let Some(http) = self.expected.get("http") else {
            return whole_answer("200 OK", &[("content-type", "text/event-stream")], &self.body);
        };
        let headers = http["headers"].as_object().unwrap();
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| (&**name, value.as_str().unwrap())).collect();
        whole_answer(&format!("{} Status", http["status"]), &headers, &self.body)
    }

    fn check(&self, outcome: Result<ChatResponse, ModelError>) {
        let Self { name, expected, .. } = self;
        match (expected["outcome"].as_str().unwrap(), outcome) {
            ("complete", Ok(response)) => {
                self.check_message(&response);
                let calls = &response.message.tool_calls;
                let reason = match (&expected["finish_reason"], &expected["incomplete_reason"]) {
                    (_, reason) if reason == "max_output_tokens" => FinishReason::Length,
                    (_, reason) if reason == "content_filter" => FinishReason::ContentFilter,
                    (status, _) if status == "completed" && calls.is_empty() => FinishReason::Stop,
                    (status, _) if status == "completed" => FinishReason::ToolCalls,
                    other => panic!("{name}: {other:?}"),
                };
                assert_eq!(response.finish_reason, reason, "{name}");
                let runs_tools = !calls.is_empty() && !response.finish_reason.is_truncated();
                assert_eq!(json!(runs_tools), expected["run_tools"], "{name}");
                self.check_usage(&response);
                if let Some(logprobs) = expected.get("logprobs") {
                    let found = serde_json::to_value(&response.logprobs).unwrap();
                    assert_eq!(found[0], logprobs[0], "{name}");
                    assert_eq!(found.as_array().unwrap().len(), logprobs.as_array().unwrap().len(), "{name}");
                }
            }
            ("incomplete", Err(error)) => {
                let error = error.downcast_ref::<tool_openai::Error>().unwrap();
                assert_eq!(error.kind(), ErrorKind::Incomplete, "{name}: {error}");
                match error.partial() {
                    Some(partial) => self.check_message(partial),
                    None => assert!(name.ends_with(".json"), "{name}"),
                }
            }
            ("error", Err(error)) => {
                let error = error.downcast_ref::<tool_openai::Error>().unwrap();
                let expected_error = &expected["error"];
                assert_eq!(json!(error.message()), expected_error["message"], "{name}");
                assert_eq!(json!(error.error_type()), expected_error["type"], "{name}");
                assert_eq!(json!(error.code()), expected_error["code"], "{name}");
                assert_eq!(json!(error.is_retryable()), expected_error["retryable"], "{name}");
                let kind = match error.kind() {
                    ErrorKind::Server => "server",
                    ErrorKind::RateLimit => "rate_limit",
                    ErrorKind::Quota => "quota",
                    ErrorKind::InvalidRequest => "invalid_request",
                    other => panic!("{name}: {other:?}"),
                };
                assert_eq!(expected_error["kind"], kind, "{name}");
                let retry_after = error.retry_after().map(|after| after.as_millis() as u64);
                assert_eq!(json!(retry_after), expected_error["retry_after_ms"], "{name}");
                let came = error.partial().map_or("", |partial| &partial.message.text);
                assert_eq!(came, expected["content"].as_str().unwrap_or_default(), "{name}");
                let id = expected["http"]["headers"]["x-request-id"].as_str();
                assert_eq!(error.request_id(), id, "{name}");
            }
            (outcome, other) => panic!("{name}: expected {outcome}, got {other:?}"),
        }
    }

    fn check_message(&self, response: &ChatResponse) {
        let (Self { name, expected, .. }, message) = (self, &response.message);
        assert_eq!(message.text, expected["content"].as_str().unwrap_or_default(), "{name}");
        assert_eq!(json!(message.refusal), expected["refusal"], "{name}");
        assert_eq!(json!(message.reasoning), expected["reasoning"], "{name}");
        let calls = message.tool_calls.iter();
        let input = |call: &ToolCall| serde_json::from_str(&call.arguments).unwrap_or(Value::Null);
        let calls: Vec<_> =
            calls.map(|call| json!([call.id, call.name, call.arguments, input(call)])).collect();
        let expected_calls = expected["tool_calls"].as_array().unwrap().iter();
        let expected_calls: Vec<_> = expected_calls
            .map(|call| json!([call["id"], call["name"], call["arguments"], call["input"]]))
            .collect();
        assert_eq!(calls, expected_calls, "{name}");
        let ids: HashSet<_> = message.tool_calls.iter().map(|call| &call.id).collect();
        assert_eq!(ids.len(), calls.len(), "{name}");
    }

    fn check_usage(&self, response: &ChatResponse) {
        let found = response.usage.map(|usage| {
            json!({
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "total_tokens": usage.total_tokens,
                "cached_tokens": usage.cached_tokens,
                "reasoning_tokens": usage.reasoning_tokens,
            })
        });
        assert_eq!(json!(found), self.expected["usage"], "{}", self.name);
    }

    /// Checks that the deltas match the response.
    fn check_deltas(&self, deltas: &[Delta], response: &ChatResponse) {
        let name = &self.name;
        let (mut text, mut reasoning, mut refusal) = (String::new(), String::new(), String::new());
        let mut calls: Vec<(String, String, String)> = Vec::new();
        for delta in deltas {
            match delta {
                Delta::Text(more) => text.push_str(more),
                Delta::Reasoning(more) => reasoning.push_str(more),
                Delta::Refusal(more) => refusal.push_str(more),
                Delta::ToolCall { index, id, name: tool } => {
                    assert_eq!(*index, calls.len(), "{name}");
                    calls.push((id.clone(), tool.clone(), String::new()));
                }
                Delta::Arguments { index, text } => calls[*index].2.push_str(text),
                other => panic!("{name}: {other:?}"),
            }
        }
        let message = &response.message;
        // Interleaved parts are streamed in the order of arrival.
        assert_eq!(text, self.expected["streamed_text"].as_str().unwrap_or(&message.text), "{name}");
        assert_eq!(reasoning, message.reasoning.clone().unwrap_or_default(), "{name}");
        assert_eq!(refusal, message.refusal.clone().unwrap_or_default(), "{name}");
        let whole = message.tool_calls.iter();
        let whole: Vec<_> =
            whole.map(|call| (call.id.clone(), call.name.clone(), call.arguments.clone())).collect();
        assert_eq!(calls, whole, "{name}");
    }

    /// Checks the items of the reply that the next request sends back.
    async fn check_echo(&self, response: ChatResponse) {
        let Some(items) = self.expected["echo"]["input_items"].as_array() else { return };
        let server =
            RawServer::answering_in_turn(vec![json_answer(&json!({ "output": [] , "status": "completed" }))])
                .await;
        let mut messages = vec![Message::user("When is high tide?")];
        messages.push(Message::Assistant(response.message.clone()));
        messages.extend(
            response.message.tool_calls.iter().map(|call| Message::tool(call, &Ok(ToolOutput::text("noon")))),
        );
        let is_valid = self.expected["spec_valid"] == true;
        let server = if is_valid { server } else { server.unchecked() };
        model(&server).chat(&ChatRequest::new(messages)).await.unwrap();
        let body = if is_valid { bodies(&server) } else { unchecked_bodies(&server) }.remove(0);
        // Requests contain no whitespace between JSON tokens.
        assert!(!body.contains('\n'), "{}", self.name);
        let sent = input(&body);
        let (before, results) = (1, response.message.tool_calls.len());
        let between = &sent[before..sent.len() - results];
        let texts = |items: &[Value]| items.iter().map(Value::to_string).collect::<Vec<_>>();
        assert_eq!(texts(between), texts(items), "{}", self.name);
        for (item, call) in sent[sent.len() - results..].iter().zip(&response.message.tool_calls) {
            assert_eq!(item["type"], "function_call_output", "{}", self.name);
            assert_eq!(item["call_id"], call.id, "{}", self.name);
        }
    }
}

#[tokio::test]
async fn reads_every_stream_of_the_corpus() {
    let cases = cases("streams", ".sse");
    assert!(cases.len() >= 29, "the corpus is incomplete");
    for case in cases {
        let server = RawServer::answering_in_turn(vec![case.answer()]).await;
        let (deltas, outcome) = streamed(&model(&server), &request()).await;
        bodies(&server);
        if let Ok(response) = &outcome {
            case.check_deltas(&deltas, response);
            case.check_echo(response.clone()).await;
        }
        case.check(outcome);
    }
}

#[tokio::test]
async fn reads_every_complete_response_of_the_corpus() {
    let cases = cases("responses", ".json");
    assert!(cases.len() >= 11, "the corpus is incomplete");
    for case in cases {
        let server = RawServer::answering_in_turn(vec![case.answer(), case.answer()]).await;
        let outcome = model(&server).chat(&request()).await;
        if let Ok(response) = &outcome {
            case.check_echo(response.clone()).await;
        }
        case.check(outcome);
        // The server does not stream although it was requested.
        let (deltas, outcome) = streamed(&model(&server), &request()).await;
        if let Ok(response) = &outcome {
            case.check_deltas(&deltas, response);
        }
        case.check(outcome);
        bodies(&server);
    }
}

/// Checks a stream that is split within lines, characters and line ends: the client reads each chunk separately.
async fn check_in_chunks(case: &Case, chunks: impl IntoIterator<Item = &[u8]>) {
    let server = RawServer::answering_in_turn(vec![chunked_answer(chunks)]).await;
    let (deltas, outcome) = streamed(&model(&server), &request()).await;
    if let Ok(response) = &outcome {
        case.check_deltas(&deltas, response);
    }
    case.check(outcome);
}

#[tokio::test]
async fn reads_every_stream_byte_by_byte() {
    for case in cases("streams", ".sse").into_iter().step_by(size(6, 1)) {
        check_in_chunks(&case, case.body.chunks(1)).await;
    }
}

#[tokio::test]
async fn reads_every_stream_in_random_chunks() {
    // A linear congruential generator: sufficiently random, and reproducible.
    let mut state = 7_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    for case in cases("streams", ".sse") {
        for longest in [3, 600, 40].into_iter().skip(size(2, 0)) {
            let (mut chunks, mut rest) = (Vec::new(), &case.body[..]);
            while !rest.is_empty() {
                let (chunk, more) = rest.split_at((1 + random(longest)).min(rest.len()));
                chunks.push(chunk);
                rest = more;
            }
            check_in_chunks(&case, chunks).await;
        }
    }
}
