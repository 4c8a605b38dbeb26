//! The corpus of replies in `wire/anthropic`, read by the client over HTTP.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tests::support::sampling::size;
use tests::support::{RawServer, chunked_answer, whole_answer};
use tool_anthropic::ErrorKind;
use tool_core::model::{ChatRequest, ChatResponse, Delta, FinishReason, ModelError};
use tool_core::{ChatModel, Message, ToolOutput};

use super::{answering, bodies, model};
use crate::responses::endpoint::{event_stream, streamed};

struct Case {
    name: String,
    body: Vec<u8>,
    expected: Value,
}

fn cases(folder: &str, extension: &str) -> Vec<Case> {
    let folder = Path::new("wire/anthropic").join(folder);
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut cases: Vec<_> = files
        .filter(|file| {
            let name = file.to_str().unwrap();
            name.ends_with(extension) && !name.contains(".expected.")
        })
        .map(|file| {
            let expected = fs::read_to_string(file.with_extension("expected.json")).unwrap();
            let expected = serde_json::from_str(&expected).unwrap();
            Case { name: file.display().to_string(), body: fs::read(&file).unwrap(), expected }
        })
        .collect();
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(cases.len() >= 8, "the corpus is incomplete");
    cases
}

fn api_error(error: &ModelError) -> &tool_anthropic::Error {
    error.downcast_ref().unwrap()
}

fn request() -> ChatRequest<'static> {
    ChatRequest::new([Message::user("When is high tide?")])
}

/// A model that does not continue a paused reply, so that each case is one request.
fn without_pauses(server: &RawServer) -> impl ChatModel {
    model(server).max_pauses(0)
}

impl Case {
    fn answer(&self) -> Vec<u8> {
        let Some(http) = self.expected.get("http") else { return event_stream(&self.body) };
        let headers = http["headers"].as_object().unwrap();
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| (&**name, value.as_str().unwrap())).collect();
        whole_answer(&format!("{} Status", http["status"]), &headers, &self.body)
    }

    fn check(&self, outcome: &Result<ChatResponse, ModelError>) {
        let Self { name, expected, .. } = self;
        match (expected["outcome"].as_str().unwrap(), outcome) {
            ("complete", Ok(response)) => {
                self.check_message(response);
                self.check_usage(response);
                let reason = match expected["finish_reason"].as_str().unwrap() {
                    "end_turn" => FinishReason::Stop,
                    "tool_use" => FinishReason::ToolCalls,
                    "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
                    "refusal" => FinishReason::ContentFilter,
                    other => FinishReason::Other(other.into()),
                };
                assert_eq!(response.finish_reason, reason, "{name}");
                let runs_tools =
                    !response.message.tool_calls.is_empty() && !response.finish_reason.is_truncated();
                assert_eq!(json!(runs_tools), expected["run_tools"], "{name}");
            }
            ("incomplete", Err(error)) => {
                let error = api_error(error);
                assert_eq!(error.kind(), ErrorKind::Incomplete, "{name}: {error}");
                self.check_message(error.partial().unwrap());
            }
            ("error", Err(error)) => self.check_error(api_error(error)),
            (outcome, other) => panic!("{name}: expected {outcome}, got {other:?}"),
        }
    }

    fn check_error(&self, error: &tool_anthropic::Error) {
        let Self { name, expected, .. } = self;
        let expected_error = &expected["error"];
        assert_eq!(json!(error.message()), expected_error["message"], "{name}");
        assert_eq!(json!(error.error_type()), expected_error["type"], "{name}");
        assert_eq!(json!(error.code()), expected_error["code"], "{name}");
        assert_eq!(json!(error.status()), expected["http"]["status"], "{name}");
        if let Some(id) = expected["http"]["headers"]["request-id"].as_str() {
            assert_eq!(error.request_id(), Some(id), "{name}");
            assert!(error.to_string().ends_with(&format!("(request {id})")), "{name}: {error}");
        }
        let kind = match error.kind() {
            ErrorKind::RateLimit => "rate_limit",
            ErrorKind::Overloaded => "overloaded",
            ErrorKind::ContextLength => "context_length",
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(expected_error["kind"], kind, "{name}");
        assert_eq!(json!(error.is_retryable()), expected_error["retryable"], "{name}");
        let retry_after = error.retry_after().map(|after| after.as_millis() as u64);
        assert_eq!(json!(retry_after), expected_error["retry_after_ms"], "{name}");
        let text = error.partial().map_or("", |partial| &partial.message.text);
        assert_eq!(text, expected["content"].as_str().unwrap_or_default(), "{name}");
    }

    fn check_message(&self, response: &ChatResponse) {
        let (Self { name, expected, .. }, message) = (self, &response.message);
        assert_eq!(message.text, expected["content"].as_str().unwrap_or_default(), "{name}");
        match &expected["refusal"] {
            Value::String(any) if any == "*" => {
                assert_eq!(message.refusal.as_deref(), Some("the model refused to answer"), "{name}");
            }
            refusal => assert_eq!(json!(message.refusal), *refusal, "{name}"),
        }
        assert_eq!(json!(message.reasoning), expected["reasoning"], "{name}");
        let calls = message.tool_calls.iter().map(|call| {
            let input: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
            json!({ "id": call.id, "name": call.name, "arguments": call.arguments, "input": input })
        });
        assert_eq!(calls.collect::<Value>(), expected["tool_calls"], "{name}");
        let citations = expected["citations"].as_array().map_or(&[][..], |citations| citations);
        assert_eq!(message.citations.len(), citations.len(), "{name}");
        for (citation, expected) in message.citations.iter().zip(citations) {
            assert_eq!(json!(citation.url), expected["url"], "{name}");
            assert_eq!(json!(citation.title), expected["title"], "{name}");
            assert_eq!(json!(citation.quote), expected["cited_text"], "{name}");
            assert_eq!(&message.text[citation.range.clone()], "high tide is at 14:20", "{name}");
        }
    }

    fn check_usage(&self, response: &ChatResponse) {
        let usage = response.usage.unwrap();
        let details = tool_anthropic::ReplyDetails::from_message(&response.message).unwrap();
        let found = json!({
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "cache_write_1h_tokens": details.long_cache_write_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
        });
        assert_eq!(found, self.expected["usage"], "{}", self.name);
    }

    /// Checks that the deltas match the response, as far as it arrived.
    fn check_deltas(&self, deltas: &[Delta], outcome: &Result<ChatResponse, ModelError>) {
        let name = &self.name;
        let mut streamed = ChatResponse::new(Default::default()).message;
        for delta in deltas {
            match delta {
                Delta::Text(more) => streamed.text.push_str(more),
                Delta::Reasoning(more) => streamed.reasoning.get_or_insert_default().push_str(more),
                Delta::Refusal(more) => streamed.refusal.get_or_insert_default().push_str(more),
                Delta::ToolCall { index, id, name: tool } => {
                    assert_eq!(*index, streamed.tool_calls.len(), "{name}");
                    streamed.tool_calls.push(tool_core::ToolCall::new(id, tool, ""));
                }
                Delta::Arguments { index, text } => streamed.tool_calls[*index].arguments.push_str(text),
                other => panic!("{name}: {other:?}"),
            }
        }
        let response = match outcome {
            Ok(response) => Some(response),
            Err(error) => api_error(error).partial(),
        };
        let Some(ChatResponse { message, .. }) = response else {
            assert!(deltas.is_empty(), "{name}");
            return;
        };
        streamed.citations.clone_from(&message.citations);
        streamed.provider_data.clone_from(&message.provider_data);
        assert!(streamed == *message, "{name}: {deltas:?}");
    }

    async fn check_in_chunks<'a>(&'a self, chunks: impl IntoIterator<Item = &'a [u8]>) {
        let server = answering(chunked_answer(chunks)).await;
        let (deltas, outcome) = streamed(&without_pauses(&server), &request()).await;
        self.check_deltas(&deltas, &outcome);
        self.check(&outcome);
    }

    /// Checks what the next request sends back.
    async fn check_echo(&self, server: &RawServer, response: &ChatResponse) {
        let Some(echo) = self.expected["echo"].get("content") else { return };
        let mut messages =
            vec![request().messages()[0].clone(), Message::Assistant(response.message.clone())];
        let results = response.message.tool_calls.iter();
        messages.extend(results.map(|call| Message::tool(call, &Ok(ToolOutput::text("high")))));
        if messages.len() == 2 {
            messages.push(Message::user("Go on."));
        }
        // The outcome does not matter.
        drop(without_pauses(server).chat(&ChatRequest::new(messages)).await);
        let sent: Value = serde_json::from_str(&bodies(server).pop().unwrap()).unwrap();
        let assistant =
            sent["messages"].as_array().unwrap().iter().find(|message| message["role"] == "assistant");
        assert_eq!(json!(assistant.map(|message| &message["content"])), *echo, "{}", self.name);
    }
}

#[tokio::test]
async fn responses_are_read() {
    for case in cases("responses", ".json") {
        let server = answering(case.answer()).await;
        let outcome = without_pauses(&server).chat(&request()).await;
        case.check(&outcome);
        if let Ok(response) = &outcome {
            case.check_echo(&server, response).await;
        }
        // A server that ignores `stream`.
        let (deltas, outcome) = streamed(&without_pauses(&server), &request()).await;
        case.check_deltas(&deltas, &outcome);
        case.check(&outcome);
    }
}

#[tokio::test]
async fn streams_are_read() {
    for case in cases("streams", ".sse") {
        let server = answering(case.answer()).await;
        let (deltas, outcome) = streamed(&without_pauses(&server), &request()).await;
        case.check_deltas(&deltas, &outcome);
        case.check(&outcome);
        if let Ok(response) = &outcome {
            case.check_echo(&server, response).await;
        }
    }
}

#[tokio::test]
async fn streams_are_read_in_chunks_of_any_length() {
    // A linear congruential generator: sufficiently random, and reproducible.
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for case in cases("streams", ".sse") {
        case.check_in_chunks(case.body.chunks(1)).await;
        for _ in 0..size(3, 30) {
            let (mut rest, mut chunks) = (&*case.body, Vec::new());
            while !rest.is_empty() {
                let (chunk, more) = rest.split_at((1 + random(97)).min(rest.len()));
                chunks.push(chunk);
                rest = more;
            }
            case.check_in_chunks(chunks).await;
        }
    }
}

/// The outcome is the whole response or an error, wherever the body ends.
#[tokio::test]
async fn a_truncated_stream_is_never_another_response() {
    for case in cases("streams", ".sse") {
        let server = answering(case.answer()).await;
        let (_, whole) = streamed(&without_pauses(&server), &request()).await;
        let step = size(97, 1);
        for length in (0..case.body.len()).step_by(step) {
            let server = answering(event_stream(&case.body[..length])).await;
            match (streamed(&without_pauses(&server), &request()).await.1, &whole) {
                (Ok(response), Ok(whole)) => assert!(response == *whole, "{}, {length} bytes", case.name),
                (Ok(_), Err(error)) => panic!("{}, {length} bytes: {error}", case.name),
                (Err(_), _) => {}
            }
        }
    }
}
