//! The corpus of server behavior, read by the client over HTTP.
//!
//! Each case is a body and the expected result: see `wire/README.md`.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tests::support::sampling::size;
use tests::support::{RawServer, chunked_answer};
use tool_core::model::{ChatRequest, ChatResponse, Delta, FinishReason, ModelError, Usage};
use tool_core::{ChatModel, Message, ToolCall, ToolOutput};
use tool_openai::{ChatCompletions, ErrorKind, OpenAi};

struct Case {
    name: String,
    body: Vec<u8>,
    expected: Value,
}

/// Returns the cases of a folder for Chat Completions.
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

fn model(base_url: String) -> ChatCompletions {
    OpenAi::builder().base_url(base_url).max_retries(0).build().unwrap().chat_model("m")
}

async fn stream(base_url: String) -> (Vec<Delta>, Result<ChatResponse, ModelError>) {
    let (model, request) = (model(base_url), request());
    let mut stream = model.stream(&request);
    let mut deltas = Vec::new();
    while let Some(delta) = stream.next().await {
        match delta {
            Ok(Delta::Done(response)) => {
                assert!(stream.next().await.is_none(), "the stream continued after its end");
                return (deltas, Ok(response));
            }
            Ok(delta) => deltas.push(delta),
            Err(error) => return (deltas, Err(error)),
        }
    }
    panic!("the stream ended without a response");
}

fn check(case: &Case, (deltas, outcome): (Vec<Delta>, Result<ChatResponse, ModelError>)) {
    let Case { name, expected, .. } = case;
    match (expected["outcome"].as_str().unwrap(), outcome) {
        ("complete", Ok(response)) => {
            check_message(name, expected, &response);
            check_deltas(name, &deltas, &response);
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
            let runs_tools = has_calls && !response.finish_reason.is_truncated();
            assert_eq!(json!(runs_tools), expected["run_tools"], "{name}");
        }
        ("incomplete", Err(error)) => {
            let error = error.downcast_ref::<tool_openai::Error>().unwrap();
            assert_eq!(error.kind(), ErrorKind::Incomplete, "{name}: {error}");
            check_message(name, expected, error.partial().unwrap());
            check_deltas(name, &deltas, error.partial().unwrap());
        }
        ("error", Err(error)) => {
            let error = error.downcast_ref::<tool_openai::Error>().unwrap();
            let expected_error = &expected["error"];
            assert_eq!(json!(error.message()), expected_error["message"], "{name}");
            assert_eq!(json!(error.error_type()), expected_error["type"], "{name}");
            assert_eq!(json!(error.code()), expected_error["code"], "{name}");
            if let Some(status) = expected["http"]["status"].as_u64().filter(|status| *status != 200) {
                assert_eq!(error.status().map(u64::from), Some(status), "{name}");
            }
            let id = expected["http"]["headers"]["x-request-id"].as_str();
            assert_eq!(error.request_id(), id, "{name}");
            let kind = match error.kind() {
                ErrorKind::Server => "server",
                ErrorKind::RateLimit => "rate_limit",
                ErrorKind::Quota => "quota",
                ErrorKind::Overloaded => "overloaded",
                ErrorKind::ContextLength => "context_length",
                ErrorKind::InvalidRequest => "invalid_request",
                ErrorKind::MalformedToolCall => "tool_generation",
                other => panic!("{name}: {other:?}"),
            };
            assert_eq!(expected_error["kind"], kind, "{name}");
            assert_eq!(json!(error.is_retryable()), expected_error["retryable"], "{name}");
            let retry_after = error.retry_after().map(|after| after.as_millis() as u64);
            assert_eq!(json!(retry_after), expected_error["retry_after_ms"], "{name}");
            let text = deltas.iter().map(|delta| match delta {
                Delta::Text(text) => &**text,
                other => panic!("{name}: {other:?}"),
            });
            assert_eq!(text.collect::<String>(), expected["content"].as_str().unwrap_or_default(), "{name}");
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
    let mut ids = HashSet::new();
    for (call, expected) in message.tool_calls.iter().zip(calls) {
        assert_eq!(call.name, expected["name"], "{name}");
        assert_eq!(call.arguments, expected["arguments"], "{name}");
        assert_eq!(input(call), expected["input"], "{name}");
        match expected["id"].as_str() {
            Some(id) => assert_eq!(call.id, id, "{name}"),
            None => assert!(!call.id.is_empty(), "{name}: a call without an id is given one"),
        }
        assert!(ids.insert(&call.id), "{name}: ids differ");
    }
    let logprobs = expected.get("logprobs").cloned().unwrap_or_else(|| json!([]));
    let without_null = |mut token: Value| {
        let top = token["top_logprobs"].as_array_mut().unwrap();
        top.iter_mut().for_each(|token| {
            token.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        });
        let token = token.as_object_mut().unwrap();
        token.retain(|_, value| *value != json!([]));
        json!(token)
    };
    let logprobs: Vec<_> = logprobs.as_array().unwrap().iter().cloned().map(without_null).collect();
    assert_eq!(json!(response.logprobs), json!(logprobs), "{name}");
}

/// Returns the arguments that a tool receives, or null if they are neither an object nor missing.
fn input(call: &ToolCall) -> Value {
    match &*call.arguments {
        "" | "null" => json!({}),
        text => serde_json::from_str(text).unwrap_or(Value::Null),
    }
}

/// Checks the fields that the next request sends back in addition to the plain message.
async fn check_echo(Case { name, expected, .. }: &Case, server: &RawServer, response: &ChatResponse) {
    let results = response.message.tool_calls.iter();
    let results = results.map(|call| Message::tool(call, &Ok(ToolOutput::text("high"))));
    let mut messages = vec![Message::user("When?"), Message::Assistant(response.message.clone())];
    messages.extend(results);
    // The outcome does not matter.
    drop(model(server.base_url()).chat(&ChatRequest::new(messages)).await);
    let sent = server.requests().pop().unwrap();
    let sent: Value = serde_json::from_str(sent.split_once("\r\n\r\n").unwrap().1).unwrap();
    let beyond = |value: &Value, plain: &[&str]| {
        let mut fields = value.as_object().unwrap().clone();
        fields.retain(|name, _| !plain.contains(&&**name));
        json!(fields)
    };
    let message = &sent["messages"][1];
    let found = beyond(message, &["role", "content", "refusal", "tool_calls"]);
    assert_eq!(found, *expected["echo"].get("message").unwrap_or(&json!({})), "{name}");
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let found = beyond(call, &["id", "type", "function"]);
        let id = call["id"].as_str().unwrap();
        assert_eq!(found, *expected["echo"]["tool_calls"].get(id).unwrap_or(&json!({})), "{name}");
    }
}

fn check_usage(name: &str, expected: &Value, usage: Option<Usage>) {
    let found = usage.map(|usage| {
        json!({
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
            "cached_tokens": usage.cached_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
        })
    });
    assert_eq!(json!(found), *expected, "{name}");
}

/// Checks that the deltas match the response.
fn check_deltas(name: &str, deltas: &[Delta], response: &ChatResponse) {
    let message = &response.message;
    let (mut text, mut reasoning, mut refusal) = (String::new(), String::new(), String::new());
    let mut calls: Vec<(&str, &str, String)> = Vec::new();
    for delta in deltas {
        match delta {
            Delta::Text(more) => text.push_str(more),
            Delta::Reasoning(more) => reasoning.push_str(more),
            Delta::Refusal(more) => refusal.push_str(more),
            Delta::ToolCall { index, id, name: tool } => {
                assert_eq!(*index, calls.len(), "{name}");
                calls.push((id, tool, String::new()));
            }
            Delta::Arguments { index, text } => calls[*index].2.push_str(text),
            other => panic!("{name}: {other:?}"),
        }
    }
    assert_eq!(text, message.text, "{name}");
    assert_eq!(reasoning, message.reasoning.as_deref().unwrap_or_default(), "{name}");
    assert_eq!(refusal, message.refusal.as_deref().unwrap_or_default(), "{name}");
    let expected_calls = message.tool_calls.iter();
    let expected_calls: Vec<_> =
        expected_calls.map(|call| (&*call.id, &*call.name, call.arguments.clone())).collect();
    assert_eq!(calls, expected_calls, "{name}");
}

#[tokio::test]
async fn reads_every_stream_of_the_corpus() {
    let cases = cases("streams", ".sse");
    assert!(cases.len() >= 51, "the corpus is incomplete");
    for case in cases {
        let server =
            RawServer::answering("200 OK", &[("content-type", "text/event-stream")], &case.body).await;
        let (deltas, outcome) = stream(server.base_url()).await;
        if let Ok(response) = &outcome {
            check_echo(&case, &server, response).await;
        }
        check(&case, (deltas, outcome));
    }
}

#[tokio::test]
async fn an_id_after_the_name_starts_no_second_call() {
    let call =
        |call: &str| format!(r#"data: {{"choices":[{{"delta":{{"tool_calls":[{call}]}}}}]}}"#) + "\n\n";
    let body = call(r#"{"index":0,"function":{"name":"get_tide"}}"#)
        + &call(r#"{"index":0,"id":"call_1","function":{"arguments":"{}"}}"#)
        + "data: [DONE]\n\n";
    let server =
        RawServer::answering("200 OK", &[("content-type", "text/event-stream")], body.as_bytes()).await;
    let (deltas, outcome) = stream(server.base_url()).await;
    let response = outcome.unwrap();
    check_deltas("an id after the name", &deltas, &response);
    assert_eq!(response.message.tool_calls.len(), 1);
    assert_eq!(response.message.tool_calls[0].arguments, "{}");
}

/// A model may end the arguments with a line break, and the server may repeat the name with it.
#[tokio::test]
async fn whitespace_after_the_arguments_starts_no_second_call() {
    let call =
        |call: &str| format!(r#"data: {{"choices":[{{"delta":{{"tool_calls":[{call}]}}}}]}}"#) + "\n\n";
    let body = call(r#"{"index":0,"id":"call_1","function":{"name":"get_tide","arguments":"{}"}}"#)
        + &call(r#"{"index":0,"function":{"name":"get_tide","arguments":"\n"}}"#)
        + "data: [DONE]\n\n";
    let server =
        RawServer::answering("200 OK", &[("content-type", "text/event-stream")], body.as_bytes()).await;
    let (_, outcome) = stream(server.base_url()).await;
    assert_eq!(outcome.unwrap().message.tool_calls.len(), 1);
}

/// Checks a stream that is split within lines, characters and line ends: the client reads each chunk separately.
async fn check_in_chunks(case: &Case, chunks: impl IntoIterator<Item = &[u8]>) {
    let server = RawServer::start(vec![chunked_answer(chunks)], Duration::ZERO).await;
    check(case, stream(server.base_url()).await);
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

#[tokio::test]
async fn reads_every_complete_response_of_the_corpus() {
    let cases = cases("responses", ".json");
    assert!(cases.len() >= 26, "the corpus is incomplete");
    for case in cases {
        let status = case.expected["http"]["status"].to_string() + " Status";
        let headers = case.expected["http"]["headers"].as_object().unwrap();
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| (&**name, value.as_str().unwrap())).collect();
        let server = RawServer::answering(&status, &headers, &case.body).await;
        let outcome = model(server.base_url()).chat(&request()).await;
        if let Ok(response) = &outcome {
            check_echo(&case, &server, response).await;
        }
        let deltas = outcome.iter().flat_map(|response| response.clone().into_deltas());
        check(&case, (deltas.filter(|delta| !matches!(delta, Delta::Done(_))).collect(), outcome));
        // The server does not stream although it was requested.
        check(&case, stream(server.base_url()).await);
    }
}

/// A server that sends calls without ids, and responses without an id or always with the same one.
#[tokio::test]
async fn generated_ids_are_unique_across_responses() {
    let call = r#"{"id":"same","choices":[{"delta":{"tool_calls":[{"function":{"name":"get_tide","arguments":"{}"}}]},"finish_reason":"stop"}]}"#;
    let body = format!("data: {call}\n\ndata: [DONE]\n\n");
    let server =
        RawServer::answering("200 OK", &[("content-type", "text/event-stream")], body.as_bytes()).await;
    let mut ids = HashSet::new();
    for _ in 0..20 {
        let response = stream(server.base_url()).await.1.unwrap();
        assert!(ids.insert(response.message.tool_calls[0].id.clone()));
    }
}
