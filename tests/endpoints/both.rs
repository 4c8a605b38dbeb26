//! What the clients of both providers do in the same way, in one table.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join;
use tests::support::{RawServer, chunked_answer, whole_answer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::timeout;
use tool_core::model::{ChatRequest, ChatResponse, Delta, FinishReason, ModelError};
use tool_core::{Agent, ChatModel, Message};
use tool_openai::Error;

/// A key that is long enough to be redacted.
const KEY: &str = "sk-0123456789abcdef";

/// The kind of an error, whether it is retryable, whether it is permanent, and its text, in which `URL` stands for the request's URL.
type Outcome = (String, bool, bool, String);

/// Asks with each provider's client, and returns the outcomes.
async fn outcomes(base_url: &str, key: Option<&str>) -> [Outcome; 2] {
    let openai = tool_openai::OpenAi::builder().base_url(base_url).max_retries(0);
    let openai = key.into_iter().fold(openai, |builder, key| builder.api_key(key));
    let anthropic = tool_anthropic::Anthropic::builder().base_url(base_url).max_retries(0);
    let anthropic = key.into_iter().fold(anthropic, |builder, key| builder.api_key(key));
    let models: [(Box<dyn ChatModel>, &str); 2] = [
        (Box::new(openai.build().unwrap().chat_model("m")), "chat/completions"),
        (Box::new(anthropic.build().unwrap().chat_model("m")), "messages"),
    ];
    let mut outcomes = Vec::new();
    for (model, path) in models {
        let error = failure(&*model).await;
        let inner: &Error = error.downcast_ref().unwrap();
        assert!(!format!("{error:?}").contains(KEY), "{path}: {error:?}");
        let text = inner.to_string().replace(&format!("{base_url}/{path}"), "URL");
        outcomes.push((format!("{:?}", inner.kind()), inner.is_retryable(), error.is_permanent(), text));
    }
    outcomes.try_into().unwrap()
}

async fn failure(model: &dyn ChatModel) -> ModelError {
    model.chat(&ChatRequest::new([Message::user("Hello")])).await.unwrap_err()
}

fn error(kind: &str, message: &str) -> String {
    format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}}}}"#)
}

#[tokio::test]
async fn errors_are_the_same() {
    let json = ("content-type", "application/json");
    let echo = error("authentication_error", &format!("wrong key {KEY}"));
    let long_id = format!(
        r#"{{"error":{{"type":"api_error","message":"Oh."}},"request_id":"a\nb{}"}}"#,
        "x".repeat(1 << 10)
    );
    // The answer, and the kind, whether to retry, whether it is permanent, and the text.
    let table = [
        (
            whole_answer("401 Unauthorized", &[json], echo.as_bytes()),
            "Authentication",
            (false, false),
            "POST URL failed with status 401, authentication_error: wrong key [key]",
        ),
        (
            whole_answer("429 Busy", &[json], error("rate_limit_error", "Slow down.").as_bytes()),
            "RateLimit",
            (true, false),
            "POST URL failed with status 429, rate_limit_error: Slow down.",
        ),
        (
            whole_answer(
                "429 Busy",
                &[json, ("x-should-retry", "false")],
                error("rate_limit_error", "No.").as_bytes(),
            ),
            "RateLimit",
            (false, false),
            "POST URL failed with status 429, rate_limit_error: No.",
        ),
        (
            whole_answer("529 Overloaded", &[json], error("overloaded_error", "Overloaded").as_bytes()),
            "Overloaded",
            (true, false),
            "POST URL failed with status 529, overloaded_error: Overloaded",
        ),
        (
            whole_answer(
                "400 Bad",
                &[json],
                error("invalid_request_error", "prompt is too long: 2 > 1").as_bytes(),
            ),
            "ContextLength",
            (false, true),
            "POST URL failed with status 400, invalid_request_error: prompt is too long: 2 > 1",
        ),
        (
            whole_answer("413 Too Large", &[("content-type", "text/html")], b"<h1>413</h1>"),
            "ContextLength",
            (false, true),
            "POST URL answered with HTML with status 413: `<h1>413</h1>`",
        ),
        (
            whole_answer(
                "413 Too Large",
                &[json],
                error("invalid_request_error", "The body is large.").as_bytes(),
            ),
            "ContextLength",
            (false, true),
            "POST URL failed with status 413, invalid_request_error: The body is large.",
        ),
        (
            whole_answer("200 OK", &[json, ("content-encoding", "gzip")], b"x"),
            "InvalidResponse",
            (false, false),
            "POST URL: the response is compressed (gzip), although the request does not accept that; turn compression off in the \
             server or its proxy",
        ),
        (
            whole_answer("308 Moved", &[("location", "https://user:secret@example.org/v2?key=secret")], b""),
            "InvalidResponse",
            (false, false),
            "POST URL is redirected to https://example.org/v2 (status 308); use that as the base URL",
        ),
        (
            whole_answer("200 OK", &[("content-type", "text/html")], b"<p>It works!</p>"),
            "InvalidResponse",
            (false, false),
            "POST URL answered with HTML: `<p>It works!</p>`; check the base URL",
        ),
        (
            whole_answer("200 OK", &[json], b"{"),
            "InvalidResponse",
            (false, false),
            "POST URL: the response does not follow the API (application/json: EOF while parsing an object at line 1 column 1); \
             check the base URL; it has 1 bytes",
        ),
        (
            whole_answer("502 Bad Gateway", &[], b"<html>502</html>"),
            "Server",
            (true, false),
            "POST URL answered with HTML with status 502: `<html>502</html>`",
        ),
        (
            whole_answer("404 Not Found", &[], b""),
            "InvalidRequest",
            (false, true),
            "POST URL failed with status 404: the response body is empty; check the base URL",
        ),
        (
            whole_answer("503 Down", &[("x-request-id", "req_7")], b""),
            "Overloaded",
            (true, false),
            "POST URL failed with status 503: the response body is empty (request req_7)",
        ),
        (
            whole_answer("500 Oh", &[json], long_id.as_bytes()),
            "Server",
            (true, false),
            &format!("POST URL failed with status 500, api_error: Oh. (request a b{}…)", "x".repeat(117)),
        ),
    ];
    for (answer, kind, (is_retryable, is_permanent), text) in table {
        let server = RawServer::start(vec![answer], Duration::ZERO).await.unchecked();
        let expected: Outcome = (kind.into(), is_retryable, is_permanent, text.into());
        assert_eq!(outcomes(&server.base_url(), Some(KEY)).await, [expected.clone(), expected]);
    }
}

#[tokio::test]
async fn a_missing_key_is_named() {
    let answer = whole_answer("401 Unauthorized", &[], error("authentication_error", "No key.").as_bytes());
    let server = RawServer::start(vec![answer], Duration::ZERO).await.unchecked();
    let text = "POST URL failed with status 401, authentication_error: No key.; no key was sent, set one with `api_key`, \
                `api_key_from_env` or `token_source`";
    let expected: Outcome = ("Authentication".into(), false, false, text.into());
    assert_eq!(outcomes(&server.base_url(), None).await, [expected.clone(), expected]);
}

#[tokio::test]
async fn an_unreachable_server_is_retried() {
    // Nothing listens on the port once the listener is dropped.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let [openai, anthropic] = outcomes(&format!("http://{address}/v1"), None).await;
    assert_eq!((&*openai.0, openai.1), ("Connect", true));
    let cause = std::net::TcpStream::connect(address).unwrap_err();
    assert_eq!((&*anthropic.0, anthropic.1), ("Connect", true));
    assert_eq!(anthropic.3, format!("could not connect to URL: {cause}"));
    assert_eq!(openai.3, anthropic.3);
}

/// What a server sends that streams a reply, in the two APIs.
struct Script {
    openai: Vec<String>,
    anthropic: Vec<String>,
}

impl Script {
    fn new<'a>(
        openai: impl IntoIterator<Item = &'a str>,
        anthropic: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let openai = openai.into_iter().map(|choice| format!("data: {{\"choices\":[{choice}]}}\n\n"));
        let anthropic = anthropic.into_iter().map(|event| format!("data: {event}\n\n"));
        let start = "data: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\"}}\n\n".to_owned();
        Self { openai: openai.collect(), anthropic: [start].into_iter().chain(anthropic).collect() }
    }

    /// Returns the answers for both clients, without the last `omitted` events.
    fn answers(&self, omitted: usize) -> Vec<Vec<u8>> {
        let answer = |events: &[String]| {
            let events = events[..events.len() - omitted].iter().map(String::as_bytes);
            chunked_answer(events)
        };
        vec![answer(&self.openai), answer(&self.anthropic)]
    }
}

/// Returns both clients' models.
fn models(base_url: &str) -> [Box<dyn ChatModel>; 2] {
    let openai = tool_openai::OpenAi::builder().base_url(base_url).api_key(KEY).max_retries(0);
    let anthropic = tool_anthropic::Anthropic::builder().base_url(base_url).api_key(KEY).max_retries(0);
    [Box::new(openai.build().unwrap().chat_model("m")), Box::new(anthropic.build().unwrap().chat_model("m"))]
}

fn question() -> ChatRequest<'static> {
    ChatRequest::new([Message::user("Hello")])
}

/// The kind of an error, whether it is retryable, its text and sources without the URL, and the text that had arrived.
fn described(error: &ModelError) -> (String, bool, String, String) {
    let error: &Error = error.downcast_ref().unwrap();
    let (text, debug) = (error.to_string(), format!("{error:?}"));
    assert!(!debug.contains(KEY) && !text.contains(KEY), "{debug}");
    let text = debug.split_once("/v1/").map_or(&*debug, |(_, rest)| rest);
    let text = text.trim_start_matches("chat/completions").trim_start_matches("messages").to_owned();
    let partial = error.partial().map(|response| response.message.text.clone()).unwrap_or_default();
    (format!("{:?}", error.kind()), error.is_retryable(), text, partial)
}

/// Reads a stream, and returns its deltas in a readable form, without the final ones, and the response.
async fn read_stream(model: &dyn ChatModel) -> (Vec<String>, Result<ChatResponse, ModelError>) {
    let request = question();
    let mut stream = model.stream(&request);
    let mut deltas = Vec::new();
    while let Some(delta) = stream.next().await {
        deltas.push(match delta {
            Ok(Delta::Done(response)) => return (deltas, Ok(response)),
            Err(error) => return (deltas, Err(error)),
            Ok(Delta::Text(text)) => text,
            Ok(Delta::ToolCall { index, id, name }) => format!("{index} {id} {name}"),
            Ok(Delta::Arguments { index, text }) => format!("{index} {text}"),
            Ok(other) => panic!("{other:?}"),
        });
    }
    panic!("the stream has no end: {deltas:?}")
}

const HALF: &str = r#"{"delta":{"content":"It is"}}"#;
const HALF_START: &str =
    r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
const HALF_DELTA: &str =
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"It is"}}"#;
const STOP: &str = r#"{"type":"content_block_stop","index":0}"#;
const STOP_1: &str = r#"{"type":"content_block_stop","index":1}"#;
const END: &str = r#"{"type":"message_stop"}"#;

#[tokio::test]
async fn streams_are_read_in_the_same_way() {
    let table = [
        (
            "an unknown stop reason",
            Script::new(
                [HALF, r#"{"delta":{},"finish_reason":"tide"}"#],
                [
                    HALF_START,
                    HALF_DELTA,
                    STOP,
                    r#"{"type":"message_delta","delta":{"stop_reason":"tide"}}"#,
                    END,
                ],
            ),
            vec!["It is"],
            vec![],
            FinishReason::Other("tide".into()),
        ),
        (
            "a call in pieces",
            Script::new(
                [
                    r#"{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"add","arguments":""}}]}}"#,
                    r#"{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]}}"#,
                    r#"{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1.50}"}}]}}"#,
                    r#"{"delta":{},"finish_reason":"tool_calls"}"#,
                ],
                [
                    r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c1","name":"add","input":{}}}"#,
                    r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}"#,
                    r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"1.50}"}}"#,
                    STOP,
                    r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#,
                    END,
                ],
            ),
            vec!["0 c1 add", "0 {\"a\":", "0 1.50}"],
            vec![("c1", "add", r#"{"a":1.50}"#)],
            FinishReason::ToolCalls,
        ),
        (
            "parallel calls, whose pieces alternate",
            Script::new(
                [
                    r#"{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"add","arguments":"{"}},{"index":1,"id":"c2","function":{"name":"now","arguments":"{"}}]}}"#,
                    r#"{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}},{"index":1,"function":{"arguments":"}"}}]}}"#,
                    r#"{"delta":{},"finish_reason":"tool_calls"}"#,
                ],
                [
                    r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c1","name":"add","input":{}}}"#,
                    r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{"}}"#,
                    r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c2","name":"now","input":{}}}"#,
                    r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{"}}"#,
                    r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"}"}}"#,
                    r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"}"}}"#,
                    STOP,
                    STOP_1,
                    r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#,
                    END,
                ],
            ),
            vec!["0 c1 add", "0 {", "1 c2 now", "1 {", "0 }", "1 }"],
            vec![("c1", "add", "{}"), ("c2", "now", "{}")],
            FinishReason::ToolCalls,
        ),
        (
            "a limit behind a call",
            Script::new(
                [
                    r#"{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"add","arguments":"{}"}}]}}"#,
                    r#"{"delta":{"tool_calls":[{"index":1,"id":"c2","function":{"name":"now","arguments":"{}"}}]}}"#,
                    r#"{"delta":{},"finish_reason":"length"}"#,
                ],
                [
                    r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c1","name":"add","input":{}}}"#,
                    r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#,
                    STOP,
                    r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c2","name":"now","input":{}}}"#,
                    r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#,
                    STOP,
                    r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"}}"#,
                    END,
                ],
            ),
            vec!["0 c1 add", "0 {}", "1 c2 now", "1 {}"],
            vec![("c1", "add", "{}"), ("c2", "now", "{}")],
            FinishReason::Length,
        ),
    ];
    for (name, script, deltas, calls, reason) in table {
        let server = RawServer::answering_in_turn(script.answers(0)).await.unchecked();
        for model in models(&server.base_url()) {
            let (found, response) = read_stream(&*model).await;
            let response = response.unwrap();
            assert_eq!(found, deltas, "{name}: {:?}", model.provider_name());
            let found = response.message.tool_calls.iter();
            let found: Vec<_> = found.map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
            assert_eq!((found, response.finish_reason), (calls.clone(), reason.clone()), "{name}");
        }
    }
}

/// Servers differ in what they send for no arguments; tools get an empty object.
#[tokio::test]
async fn a_call_without_arguments_is_executed() {
    #[tool_core::tool]
    /// Returns the time.
    fn now() -> &'static str {
        "14:20"
    }

    let script = Script::new(
        [
            r#"{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"now","arguments":""}}]}}"#,
            r#"{"delta":{},"finish_reason":"tool_calls"}"#,
        ],
        [
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c1","name":"now","input":{}}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":""}}"#,
            STOP,
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#,
            END,
        ],
    );
    let last = Script::new(
        [HALF, r#"{"delta":{},"finish_reason":"stop"}"#],
        [HALF_START, HALF_DELTA, STOP, r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#, END],
    );
    let [first, last] = [script.answers(0), last.answers(0)];
    let answers = [&first[0], &last[0], &first[1], &last[1]].map(Clone::clone);
    let server = RawServer::answering_in_turn(answers.to_vec()).await.unchecked();
    for model in models(&server.base_url()) {
        let agent = Agent::builder(model).tools(tool_core::tools![now]).build().unwrap();
        let mut stream = agent.ask("Hello").stream();
        while let Some(event) = stream.next().await {
            event.unwrap();
        }
    }
    let requests = server.requests();
    for request in [&requests[1], &requests[3]] {
        assert!(request.contains("14:20"), "{request}");
    }
}

#[tokio::test]
async fn cut_streams_are_incomplete() {
    let script = Script::new([HALF, HALF], [HALF_START, HALF_DELTA, HALF_DELTA, STOP]);
    for (omitted, partial) in [(0, "It isIt is"), (1, "It is")] {
        let mut answers = script.answers(omitted);
        if omitted == 1 {
            answers[1] = script.answers(2).remove(1);
        }
        let server = RawServer::answering_in_turn(answers).await.unchecked();
        for model in models(&server.base_url()) {
            let (_, response) = read_stream(&*model).await;
            let expected = (
                "Incomplete".to_owned(),
                true,
                ": the stream ended before the response was complete".to_owned(),
                partial.to_owned(),
            );
            assert_eq!(described(&response.unwrap_err()), expected);
        }
    }
}

#[tokio::test]
async fn an_error_in_a_stream_ends_it() {
    let failed = error("overloaded_error", &format!("busy, {KEY}"));
    let mut script = Script::new([HALF], [HALF_START, HALF_DELTA]);
    let event = format!("event: error\ndata: {failed}\n\n");
    script.openai.push(event.clone());
    script.anthropic.push(event);
    let server = RawServer::answering_in_turn(script.answers(0)).await.unchecked();
    for model in models(&server.base_url()) {
        let (deltas, response) = read_stream(&*model).await;
        let text = " failed, overloaded_error: busy, [key]";
        assert_eq!(deltas, ["It is"]);
        let expected = ("Overloaded".to_owned(), true, text.to_owned(), "It is".to_owned());
        assert_eq!(described(&response.unwrap_err()), expected);
    }
}

#[tokio::test]
async fn what_may_be_a_reply_is_not_quoted() {
    let json = ("content-type", "application/json");
    let stream = ("content-type", "text/event-stream; charset=utf-8");
    for (header, body) in [
        (json, r#"{"content":"My reply."}"#),
        (json, r#"["My reply."]"#),
        (stream, "data: My reply.\n\n"),
        (stream, "data: \"My reply.\"\n\n"),
    ] {
        let server =
            RawServer::start(vec![whole_answer("200 OK", &[header], body.as_bytes())], Duration::ZERO);
        let server = server.await.unchecked();
        for model in models(&server.base_url()) {
            let (kind, _, text, _) = described(&read_stream(&*model).await.1.unwrap_err());
            assert_eq!(kind, "InvalidResponse", "{text}");
            assert!(!text.contains("reply."), "{text}");
        }
    }
}

#[tokio::test]
async fn the_delay_of_the_server_is_followed() {
    let busy = |delay| {
        whole_answer(
            "429 Busy",
            &[("retry-after", delay)],
            error("rate_limit_error", "Slow down.").as_bytes(),
        )
    };
    let json = |body: &str| whole_answer("200 OK", &[("content-type", "application/json")], body.as_bytes());
    let openai = json(r#"{"choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}]}"#);
    let anthropic =
        json(r#"{"type":"message","content":[{"type":"text","text":"Hello"}],"stop_reason":"end_turn"}"#);
    // The last delay is too long to wait for.
    let answers = vec![busy("0.125"), openai, busy("0.125"), anthropic, busy("86400"), busy("86400")];
    let server = RawServer::answering_in_turn(answers).await.unchecked();
    let delays = Arc::new(Mutex::new(Vec::new()));
    let base_url = server.base_url();
    let openai = tool_openai::OpenAi::builder().base_url(&base_url);
    let seen = Arc::clone(&delays);
    let openai = openai.on_retry(move |retry| seen.lock().unwrap().push((retry.number, retry.delay)));
    let anthropic = tool_anthropic::Anthropic::builder().base_url(&base_url);
    let seen = Arc::clone(&delays);
    let anthropic = anthropic.on_retry(move |retry| seen.lock().unwrap().push((retry.number, retry.delay)));
    let models: [Box<dyn ChatModel>; 2] = [
        Box::new(openai.build().unwrap().chat_model("m")),
        Box::new(anthropic.build().unwrap().chat_model("m")),
    ];
    for model in &models {
        assert_eq!(model.chat(&question()).await.unwrap().message.text, "Hello");
    }
    assert_eq!(*delays.lock().unwrap(), [(1, Duration::from_millis(125)); 2]);
    for model in &models {
        let (kind, is_retryable, ..) = described(&model.chat(&question()).await.unwrap_err());
        assert_eq!((&*kind, is_retryable), ("RateLimit", false));
    }
    assert_eq!(server.requests().len(), 6);
}

/// Reads a request, sends `start`, and returns once the client has closed the connection.
async fn serve_until_closed(listener: &TcpListener, start: &[u8], has_request: &Notify) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut buffer = vec![0; 1 << 16];
    assert!(stream.read(&mut buffer).await.unwrap() > 0);
    stream.write_all(start).await.unwrap();
    has_request.notify_one();
    // A reset is an end, too.
    while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
}

#[tokio::test]
async fn what_is_dropped_is_cancelled() {
    let limit = Duration::from_secs(120);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let starts = Script::new([HALF], [HALF_START, HALF_DELTA]).answers(0);
    for (model, start) in models(&base_url).iter().zip(starts) {
        let (has_request, request) = (Notify::new(), question());
        // A request without a response.
        let closed = serve_until_closed(&listener, b"", &has_request);
        let asked = async {
            tokio::select! {
                response = model.chat(&request) => panic!("{response:?}"),
                () = has_request.notified() => {}
            }
        };
        timeout(limit, join(closed, asked)).await.unwrap();
        // A stream whose start has arrived, without the end of the body.
        let start = start.strip_suffix(b"0\r\n\r\n").unwrap();
        let closed = serve_until_closed(&listener, start, &has_request);
        let asked = async {
            let mut stream = model.stream(&request);
            assert!(matches!(stream.next().await.unwrap().unwrap(), Delta::Text(text) if text == "It is"));
        };
        timeout(limit, join(closed, asked)).await.unwrap();
    }
}

#[tokio::test]
async fn bodies_and_lines_are_bounded() {
    let json = whole_answer("200 OK", &[("content-type", "application/json")], b"{\"x\":\"");
    let stream = whole_answer("200 OK", &[("content-type", "text/event-stream")], b"data: ");
    for (start, is_streamed, kind, text) in [
        (json, false, "InvalidResponse", ": the response is longer than 67108864 bytes"),
        (stream, true, "Incomplete", "the stream is longer than 67108864 bytes"),
    ] {
        let mut parts = vec![start];
        parts.extend(std::iter::repeat_n(vec![b'x'; 1 << 20], 65));
        let server = RawServer::start(parts, Duration::ZERO).await.unchecked();
        for model in models(&server.base_url()) {
            let error = match is_streamed {
                true => read_stream(&*model).await.1.unwrap_err(),
                false => model.chat(&question()).await.unwrap_err(),
            };
            let (found, _, shown, _) = described(&error);
            assert_eq!(found, kind, "{shown}");
            assert!(shown.ends_with(text), "{shown}");
        }
    }
}

#[tokio::test]
async fn a_long_error_in_a_stream_is_truncated() {
    let failed = error("api_error", &"x".repeat(1 << 20));
    let script = Script::new([HALF], [HALF_START, HALF_DELTA, &failed]);
    let server = RawServer::answering_in_turn(script.answers(0).split_off(1)).await.unchecked();
    let [_, model] = models(&server.base_url());
    let error: Error = read_stream(&*model).await.1.unwrap_err().downcast().unwrap();
    assert_eq!(error.body().map(str::len), Some(64 << 10));
}
