//! The corpus of server behavior, read by the client over HTTP.
//!
//! Each case is a body and the expected result: see `wire/README.md`.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tests::support::sampling::size;
use tests::support::schema::Api;
use tests::support::{RawServer, chunked_answer, whole_answer};
use tool_core::model::{ChatRequest, ChatResponse, Delta, FinishReason, ModelError};
use tool_core::{ChatModel, Message, ToolCall, ToolOutput};
use tool_openai::{ErrorKind, OpenAi};

use crate::responses::endpoint::{event_stream, streamed};

struct Case {
    name: String,
    api: Api,
    body: Vec<u8>,
    expected: Value,
}

/// Returns the cases of a folder, at least one for each API.
fn cases(folder: &str, extension: &str) -> Vec<Case> {
    let files = fs::read_dir(Path::new("wire").join(folder)).unwrap().map(|file| file.unwrap().path());
    let mut cases: Vec<_> = files
        .filter(|file| {
            let name = file.to_str().unwrap();
            name.ends_with(extension) && !name.contains(".expected.")
        })
        .map(|file| {
            let expected = fs::read_to_string(file.with_extension("expected.json")).unwrap();
            let expected: Value = serde_json::from_str(&expected).unwrap();
            let api = match expected["api"].as_str().unwrap() {
                "chat_completions" => Api::ChatCompletions,
                "responses" => Api::Responses,
                other => panic!("unknown API: {other}"),
            };
            Case { name: file.display().to_string(), api, body: fs::read(&file).unwrap(), expected }
        })
        .collect();
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    for api in [Api::ChatCompletions, Api::Responses] {
        assert!(cases.iter().any(|case| case.api == api), "the corpus is incomplete");
    }
    cases
}

fn request() -> ChatRequest<'static> {
    ChatRequest::new([Message::user("When is high tide?")])
}

fn model(api: Api, server: &RawServer) -> Box<dyn ChatModel> {
    let openai = OpenAi::builder().base_url(server.base_url()).max_retries(0).build().unwrap();
    match api {
        Api::ChatCompletions => Box::new(openai.chat_model("m")),
        Api::Responses => Box::new(openai.responses_model("m")),
        other => unreachable!("{other:?} is not OpenAI's"),
    }
}

fn api_error(error: &ModelError) -> &tool_openai::Error {
    error.downcast_ref().unwrap()
}

impl Case {
    fn answer(&self) -> Vec<u8> {
        let Some(http) = self.expected.get("http") else { return event_stream(&self.body) };
        let headers = http["headers"].as_object().unwrap();
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| (&**name, value.as_str().unwrap())).collect();
        whole_answer(&format!("{} Status", http["status"]), &headers, &self.body)
    }

    /// Starts a server that gives this answer to every request.
    async fn server(&self, answer: Vec<u8>) -> RawServer {
        let server = RawServer::start(vec![answer], Duration::ZERO).await;
        // Items in unknown forms are sent back unchanged.
        if self.expected["spec_valid"] == true { server } else { server.unchecked() }
    }

    /// Reads a stream and checks its deltas and its outcome.
    async fn check_streamed(&self, server: &RawServer) -> Result<ChatResponse, ModelError> {
        let (deltas, outcome) = streamed(&*model(self.api, server), &request()).await;
        self.check_deltas(&deltas, &outcome);
        self.check(&outcome);
        outcome
    }

    /// Reads the body as a stream whose chunks the client reads separately.
    async fn check_in_chunks<'a>(&'a self, chunks: impl IntoIterator<Item = &'a [u8]>) {
        let server = self.server(chunked_answer(chunks)).await;
        let _ = self.check_streamed(&server).await;
    }

    fn check(&self, outcome: &Result<ChatResponse, ModelError>) {
        let Self { name, expected, .. } = self;
        match (expected["outcome"].as_str().unwrap(), outcome) {
            ("complete", Ok(response)) => {
                self.check_message(response);
                assert_eq!(response.finish_reason, self.finish_reason(), "{name}");
                self.check_usage(response);
                let runs_tools =
                    !response.message.tool_calls.is_empty() && !response.finish_reason.is_truncated();
                assert_eq!(json!(runs_tools), expected["run_tools"], "{name}");
            }
            ("incomplete", Err(error)) => {
                let error = api_error(error);
                assert_eq!(error.kind(), ErrorKind::Incomplete, "{name}: {error}");
                match error.partial() {
                    Some(partial) => self.check_message(partial),
                    None => assert!(name.ends_with(".json"), "{name}"),
                }
            }
            ("error", Err(error)) => self.check_error(api_error(error)),
            (outcome, other) => panic!("{name}: expected {outcome}, got {other:?}"),
        }
    }

    fn check_error(&self, error: &tool_openai::Error) {
        let Self { name, expected, .. } = self;
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
        let text = error.partial().map_or("", |partial| &partial.message.text);
        assert_eq!(text, expected["content"].as_str().unwrap_or_default(), "{name}");
    }

    fn finish_reason(&self) -> FinishReason {
        let has_calls = !self.expected["tool_calls"].as_array().unwrap().is_empty();
        let without_limit = if has_calls { FinishReason::ToolCalls } else { FinishReason::Stop };
        let reason = self.expected["incomplete_reason"].as_str().or(self.expected["finish_reason"].as_str());
        match reason {
            Some("length" | "max_output_tokens") => FinishReason::Length,
            Some("content_filter") => FinishReason::ContentFilter,
            Some("tool_calls") => FinishReason::ToolCalls,
            Some("stop") => FinishReason::Stop,
            Some("completed") | None => without_limit,
            Some(other) => FinishReason::Other(other.into()),
        }
    }

    fn check_message(&self, response: &ChatResponse) {
        let (Self { name, expected, .. }, message) = (self, &response.message);
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
        let logprobs = expected["logprobs"].as_array().map_or(&[][..], |logprobs| logprobs);
        let logprobs: Vec<_> = logprobs.iter().cloned().map(without_unset_fields).collect();
        assert_eq!(json!(response.logprobs), json!(logprobs), "{name}");
        let citations = expected.get("citations").cloned().unwrap_or_else(|| json!([]));
        assert_eq!(json!(message.citations), citations, "{name}");
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

    /// Checks that the deltas match the response, as far as it arrived.
    fn check_deltas(&self, deltas: &[Delta], outcome: &Result<ChatResponse, ModelError>) {
        let name = &self.name;
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
        let response = match outcome {
            Ok(response) => Some(response),
            Err(error) => api_error(error).partial(),
        };
        let Some(ChatResponse { message, .. }) = response else {
            assert!(deltas.is_empty(), "{name}");
            return;
        };
        // Interleaved parts are streamed in the order of arrival.
        assert_eq!(text, self.expected["streamed_text"].as_str().unwrap_or(&message.text), "{name}");
        assert_eq!(reasoning, message.reasoning.as_deref().unwrap_or_default(), "{name}");
        assert_eq!(refusal, message.refusal.as_deref().unwrap_or_default(), "{name}");
        let whole = message.tool_calls.iter();
        let whole: Vec<_> = whole.map(|call| (&*call.id, &*call.name, call.arguments.clone())).collect();
        assert_eq!(calls, whole, "{name}");
    }

    /// Checks what the next request sends back.
    async fn check_echo(&self, server: &RawServer, response: &ChatResponse) {
        let mut messages = vec![Message::user("When?"), Message::Assistant(response.message.clone())];
        let results = response.message.tool_calls.iter();
        messages.extend(results.map(|call| Message::tool(call, &Ok(ToolOutput::text("high")))));
        // The outcome does not matter.
        drop(model(self.api, server).chat(&ChatRequest::new(messages)).await);
        let request = server.requests().pop().unwrap();
        let body = request.split_once("\r\n\r\n").unwrap().1;
        let sent: Value = serde_json::from_str(body).unwrap();
        match self.api {
            Api::ChatCompletions => self.check_echoed_fields(&sent["messages"][1]),
            Api::Responses => {
                // Items are sent back without whitespace between JSON tokens.
                assert!(!body.contains('\n'), "{}", self.name);
                let input = sent["input"].as_array().unwrap();
                let (items, results) = input.split_at(input.len() - response.message.tool_calls.len());
                self.check_echoed_items(&items[1..]);
                for (item, call) in results.iter().zip(&response.message.tool_calls) {
                    let (kind, id) = (&item["type"], &item["call_id"]);
                    assert_eq!(
                        (kind, id),
                        (&json!("function_call_output"), &json!(call.id)),
                        "{}",
                        self.name
                    );
                }
            }
            other => unreachable!("{other:?} is not OpenAI's"),
        }
    }

    /// Checks the fields that are sent back in addition to the plain message.
    fn check_echoed_fields(&self, message: &Value) {
        let Self { name, expected, .. } = self;
        let beyond = |value: &Value, plain: &[&str]| {
            let mut fields = value.as_object().unwrap().clone();
            fields.retain(|name, _| !plain.contains(&&**name));
            json!(fields)
        };
        let found = beyond(message, &["role", "content", "refusal", "tool_calls"]);
        assert_eq!(found, *expected["echo"].get("message").unwrap_or(&json!({})), "{name}");
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let found = beyond(call, &["id", "type", "function"]);
            let id = call["id"].as_str().unwrap();
            assert_eq!(found, *expected["echo"]["tool_calls"].get(id).unwrap_or(&json!({})), "{name}");
        }
    }

    /// Checks the items that are sent back in place of the plain message, byte by byte.
    fn check_echoed_items(&self, items: &[Value]) {
        let Some(expected) = self.expected["echo"]["input_items"].as_array() else { return };
        let texts = |items: &[Value]| items.iter().map(Value::to_string).collect::<Vec<_>>();
        assert_eq!(texts(items), texts(expected), "{}", self.name);
    }
}

/// Returns the arguments that a tool receives, or null if they are neither an object nor missing.
fn input(call: &ToolCall) -> Value {
    match &*call.arguments {
        "" | "null" => json!({}),
        text => serde_json::from_str(text).unwrap_or(Value::Null),
    }
}

/// Returns a token's log probability without fields that are null or empty.
fn without_unset_fields(mut token: Value) -> Value {
    for token in token["top_logprobs"].as_array_mut().unwrap() {
        token.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    }
    token.as_object_mut().unwrap().retain(|_, value| *value != json!([]));
    token
}

#[tokio::test]
async fn reads_every_stream_of_the_corpus() {
    for case in cases("streams", ".sse") {
        let server = case.server(case.answer()).await;
        if let Ok(response) = case.check_streamed(&server).await {
            case.check_echo(&server, &response).await;
        }
    }
}

#[tokio::test]
async fn reads_every_stream_byte_by_byte() {
    for case in cases("streams", ".sse").into_iter().step_by(size(6, 1)) {
        case.check_in_chunks(case.body.chunks(1)).await;
    }
}

/// Reads streams that are split within lines, characters and line ends: the client reads each chunk separately.
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
            case.check_in_chunks(chunks).await;
        }
    }
}

#[tokio::test]
async fn reads_every_complete_response_of_the_corpus() {
    for case in cases("responses", ".json") {
        let server = case.server(case.answer()).await;
        let outcome = model(case.api, &server).chat(&request()).await;
        if let Ok(response) = &outcome {
            case.check_echo(&server, response).await;
        }
        case.check(&outcome);
        // The server does not stream although it was requested.
        let _ = case.check_streamed(&server).await;
    }
}

/// Reads the stream of one call in these parts, and returns the calls of the response.
async fn calls_in_parts(parts: &[&str]) -> Vec<ToolCall> {
    let events = parts
        .iter()
        .map(|part| format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{part}]}}}}]}}\n\n"));
    let body = events.collect::<String>() + "data: [DONE]\n\n";
    let server = RawServer::answering_in_turn(vec![event_stream(body.as_bytes())]).await;
    let (_, outcome) = streamed(&*model(Api::ChatCompletions, &server), &request()).await;
    outcome.unwrap().message.tool_calls
}

#[tokio::test]
async fn an_id_after_the_name_starts_no_second_call() {
    let calls = calls_in_parts(&[
        r#"{"index":0,"function":{"name":"get_tide"}}"#,
        r#"{"index":0,"id":"call_1","function":{"arguments":"{}"}}"#,
    ])
    .await;
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].arguments, "{}");
}

/// A model may end the arguments with a line break, and the server may repeat the name with it.
#[tokio::test]
async fn whitespace_after_the_arguments_starts_no_second_call() {
    let calls = calls_in_parts(&[
        r#"{"index":0,"id":"call_1","function":{"name":"get_tide","arguments":"{}"}}"#,
        r#"{"index":0,"function":{"name":"get_tide","arguments":"\n"}}"#,
    ])
    .await;
    assert_eq!(calls.len(), 1);
}

/// A server that sends calls without ids, and responses without an id or always with the same one.
#[tokio::test]
async fn generated_ids_are_unique_across_responses() {
    let call = r#"{"id":"same","choices":[{"delta":{"tool_calls":[{"function":{"name":"get_tide","arguments":"{}"}}]},"finish_reason":"stop"}]}"#;
    let body = format!("data: {call}\n\ndata: [DONE]\n\n");
    let headers = [("content-type", "text/event-stream")];
    let server = RawServer::answering("200 OK", &headers, body.as_bytes()).await;
    let mut ids = HashSet::new();
    for _ in 0..20 {
        let response = streamed(&*model(Api::ChatCompletions, &server), &request()).await.1.unwrap();
        assert!(ids.insert(response.message.tool_calls[0].id.clone()));
    }
}
