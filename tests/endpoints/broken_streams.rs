//! Broken and invalid streams: every input results in a complete response or a typed error with the partial response, and
//! memory use stays within the limits for a response.

use std::fs;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tests::support::sampling::{cases, is_exhaustive, size};
use tests::support::{RawServer, chunked_answer, pass};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tool_core::model::{ChatRequest, ChatResponse, Delta, ModelError};
use tool_core::{ChatModel, Message};
use tool_openai::{ChatCompletions, Error, ErrorKind, OpenAi};

/// Reached only by a server that hangs, and on a clock that was advanced.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

fn model(base_url: &str) -> ChatCompletions {
    let client = OpenAi::builder()
        .base_url(base_url)
        .api_key("sk-very-secret-key")
        .max_retries(0)
        .read_timeout(READ_TIMEOUT);
    client.build().unwrap().chat_model("m")
}

/// Returns the accumulated deltas and the end of the stream.
async fn stream(model: &ChatCompletions) -> (Received, Result<ChatResponse, Error>) {
    let request = ChatRequest::new([Message::user("Hello")]);
    let mut deltas = model.stream(&request);
    let mut received = Received::default();
    let mut end = None;
    while let Some(delta) = deltas.next().await {
        assert!(end.is_none(), "the stream continued after its end");
        match delta {
            Ok(Delta::Done(response)) => end = Some(Ok(response)),
            Ok(delta) => received.add(delta),
            Err(error) => end = Some(Err(typed(error))),
        }
    }
    (received, end.expect("the stream has an end"))
}

fn typed(error: ModelError) -> Error {
    let error: Error = error.downcast().unwrap();
    assert!(!format!("{error} {error:?}").contains("sk-very-secret-key"));
    error
}

/// The text and the calls of a response, each with its id, name and arguments.
#[derive(Debug, Default, PartialEq)]
struct Received {
    text: String,
    calls: Vec<(String, String, String)>,
}

impl Received {
    fn add(&mut self, delta: Delta) {
        match delta {
            Delta::Text(text) => self.text.push_str(&text),
            Delta::ToolCall { id, name, .. } => self.calls.push((id, name, String::new())),
            Delta::Arguments { index, text } => self.calls[index].2.push_str(&text),
            _ => {}
        }
    }

    fn from_response(response: &ChatResponse) -> Self {
        // A call is streamed only once it has a name.
        let calls = response.message.tool_calls.iter().filter(|call| !call.name.is_empty());
        let calls = calls.map(|call| (call.id.clone(), call.name.clone(), call.arguments.clone()));
        Self { text: response.message.text.clone(), calls: calls.collect() }
    }

    /// Clears the ids, because generated ones differ.
    fn without_ids(mut self) -> Self {
        self.calls.iter_mut().for_each(|call| call.0.clear());
        self
    }

    fn is_prefix_of(&self, whole: &Self) -> bool {
        let calls = self.calls.iter().zip(&whole.calls);
        whole.text.starts_with(&self.text)
            && self.calls.len() <= whole.calls.len()
            && calls.into_iter().all(|(part, call)| part.1 == call.1 && call.2.starts_with(&part.2))
    }
}

async fn answer_with(head: &str, body: &[u8]) -> (Received, Result<ChatResponse, Error>) {
    let mut answer = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n{head}\r\n\r\n").into_bytes();
    answer.extend_from_slice(body);
    let server = RawServer::start(vec![answer], Duration::ZERO).await;
    stream(&model(&server.base_url())).await
}

const EVENTS: &str = "content-type: text/event-stream";

/// Returns the streams of the corpus for Chat Completions.
fn corpus() -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(Path::new("wire/streams")).unwrap().map(|file| file.unwrap().path());
    let streams = files.filter(|file| file.extension().is_some_and(|extension| extension == "sse"));
    let is_ours = |file: &std::path::PathBuf| {
        let expected = fs::read_to_string(file.with_extension("expected.json")).unwrap();
        expected.contains(r#""api": "chat_completions""#)
    };
    let mut streams: Vec<_> =
        streams.filter(is_ours).map(|file| (file.display().to_string(), fs::read(&file).unwrap())).collect();
    streams.sort();
    streams
}

/// Starts a server that answers with these parts of a stream, one after another, over connections that stay open.
async fn serve_parts(body: Vec<u8>, ends: Vec<usize>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut ends = ends.into_iter();
        while let Ok((mut connection, _)) = listener.accept().await {
            while let Some(()) = read_request(&mut connection).await {
                let Some(end) = ends.next() else { return };
                let head = format!("HTTP/1.1 200 OK\r\n{EVENTS}\r\ncontent-length: {end}\r\n\r\n");
                let answer = [head.as_bytes(), &body[..end]].concat();
                if connection.write_all(&answer).await.is_err() {
                    break;
                }
            }
        }
    });
    format!("http://{address}/v1")
}

/// Reads one request, which is short enough for a single read; `None` if there are no more.
async fn read_request(connection: &mut TcpStream) -> Option<()> {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while !request.ends_with(b"}") {
        let count = connection.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        request.extend_from_slice(&buffer[..count]);
    }
    Some(())
}

/// The positions at which a stream of this length is cut: all, or in a sample every 151st byte and those close to the end.
fn cuts(length: usize) -> Vec<usize> {
    let is_cut = |end: &usize| is_exhaustive() || end % 151 == length % 151 || length - end < 12;
    (0..=length).filter(is_cut).collect()
}

async fn check_each_cut(streams: impl IntoIterator<Item = (String, Vec<u8>)>) {
    for (name, body) in streams {
        let (received, outcome) = answer_with(EVENTS, &body).await;
        let whole = received.without_ids();
        let ends_well = outcome.is_ok();
        let model = model(&serve_parts(body.clone(), cuts(body.len())).await);
        for end in cuts(body.len()) {
            let (received, outcome) = stream(&model).await;
            match outcome {
                Ok(response) => {
                    assert!(ends_well, "{name} {end}");
                    assert_eq!(Received::from_response(&response), received, "{name} {end}");
                    assert_eq!(received.without_ids(), whole, "{name} {end}");
                }
                Err(error) => {
                    assert!(
                        error.kind() == ErrorKind::Incomplete || error.message().is_some(),
                        "{name} {end}: {error:?}"
                    );
                    if let Some(partial) = error.partial() {
                        assert_eq!(Received::from_response(partial), received, "{name} {end}");
                    }
                    assert!(received.without_ids().is_prefix_of(&whole), "{name} {end}");
                    let is_all = body[end..].iter().all(u8::is_ascii_whitespace);
                    assert!(!(is_all && ends_well), "{name} {end}: {error:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_stream_cut_at_any_byte_is_complete_or_an_error_with_the_partial_response() {
    check_each_cut(corpus().into_iter().step_by(2)).await;
}

#[tokio::test]
async fn the_remaining_streams_cut_at_any_byte() {
    check_each_cut(corpus().into_iter().skip(1).step_by(2)).await;
}

/// The connection breaks in the middle of a chunk, which is a separate error.
#[tokio::test]
async fn a_connection_cut_at_any_byte_keeps_the_partial_response() {
    let (_, body) = corpus().into_iter().find(|(name, _)| name.contains("21-index-null")).unwrap();
    let answer = chunked_answer(body.chunks(100));
    let begins = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    let (whole, _) = answer_with(EVENTS, &body).await;
    let finish = answer.windows(21).rposition(|bytes| bytes == br#""finish_reason":"tool"#).unwrap();
    let step = size(29, 1);
    let cuts: Vec<_> = (begins..answer.len()).step_by(step).collect();
    let server = RawServer::answering_in_turn(cuts.iter().map(|end| answer[..*end].to_vec()).collect()).await;
    let model = model(&server.base_url());
    for end in cuts {
        let (received, outcome) = stream(&model).await;
        assert!(received.is_prefix_of(&whole), "{end}");
        match outcome {
            Ok(response) => assert!(end > finish && Received::from_response(&response) == whole, "{end}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Incomplete, "{end}: {error:?}");
                assert_eq!(Received::from_response(error.partial().unwrap()), received, "{end}");
                assert!(std::error::Error::source(&error).is_some(), "{end}: the error has a source");
            }
        }
    }
}

fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Returns `true` unless the connection or the configuration caused the error.
fn is_response_error(error: &Error) -> bool {
    let kind = error.kind();
    error.message().is_some()
        || matches!(kind, ErrorKind::Incomplete | ErrorKind::InvalidResponse | ErrorKind::Server)
}

/// Checks that an answer of these bytes results in a typed error or a response, and that a stream ends exactly once.
fn check_garbage(body: &[u8]) {
    run(async {
        for head in [EVENTS, "content-type: application/json"] {
            let (_, outcome) = answer_with(head, body).await;
            if let Err(error) = outcome {
                let is_typed = is_response_error(&error);
                assert!(is_typed, "{error:?}");
            }
        }
    });
}

#[test]
fn random_bytes_never_panic() {
    let mut runner = TestRunner::new(cases(25, 100));
    let garbage = prop::collection::vec(any::<u8>(), 0..2000);
    runner
        .run(&garbage, |body| {
            check_garbage(&body);
            Ok(())
        })
        .unwrap();
}

/// Changes, removes and repeats some bytes of the streams in the corpus.
#[test]
fn garbled_streams_never_panic() {
    let streams = corpus();
    let change = (any::<prop::sample::Index>(), any::<u8>(), 0..4_u8);
    let garbled = (prop::sample::select(streams), prop::collection::vec(change, 1..6)).prop_map(
        |((_, mut body), changes)| {
            for (place, byte, kind) in changes {
                let place = place.index(body.len());
                match kind {
                    0 => body[place] = byte,
                    1 => drop(body.remove(place)),
                    2 => body.insert(place, byte),
                    _ => body.extend_from_within(place..),
                }
            }
            body
        },
    );
    let mut runner = TestRunner::new(cases(30, 300));
    runner
        .run(&garbled, |body| {
            check_garbage(&body);
            Ok(())
        })
        .unwrap();
}

/// Starts a server that repeats a chunk without end; the task returns how many bytes the client read before it disconnected.
async fn endless(head: &'static [u8], chunk: Vec<u8>) -> (String, tokio::task::JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let written = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        read_request(&mut connection).await;
        let mut written = 0;
        connection.write_all(head).await.unwrap();
        while connection.write_all(&chunk).await.is_ok() {
            written += chunk.len();
        }
        written
    });
    (format!("http://{address}/v1"), written)
}

/// An upper bound for the buffers of the connection, which the system chooses.
const SYSTEM_BUFFERS: usize = 16 << 20;

#[tokio::test]
async fn rejects_an_endless_head() {
    let heads: [(&[u8], Vec<u8>); 4] = [
        (b"HTTP/1.1 200 OK\r\n", b"x-header: value\r\n".repeat(100)),
        (b"HTTP/1.1 200 OK\r\nx-header: ", vec![b'a'; 10_000]),
        (b"HTTP/1.1 200 ", vec![b'a'; 10_000]),
        (
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n1;",
            vec![b'a'; 10_000],
        ),
    ];
    for (head, chunk) in heads {
        let (base_url, written) = endless(head, chunk).await;
        let (_, outcome) = stream(&model(&base_url)).await;
        let error = outcome.unwrap_err();
        assert!(!error.is_timeout(), "{error:?}");
        assert!(written.await.unwrap() < SYSTEM_BUFFERS);
    }
}

#[tokio::test]
async fn rejects_endless_trailers() {
    let head =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n0\r\n";
    let (base_url, written) = endless(head, b"x-header: value\r\n".repeat(100)).await;
    let (_, outcome) = stream(&model(&base_url)).await;
    assert!(outcome.unwrap_err().kind() == ErrorKind::Incomplete);
    assert!(written.await.unwrap() < SYSTEM_BUFFERS);
}

#[tokio::test]
async fn rejects_an_endless_stream() {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let comment = format!(": {}\n\n", "a".repeat(1 << 16));
    let text =
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "a".repeat(1 << 16));
    for (chunk, has_text) in [(comment, false), (text, true)] {
        let (base_url, written) = endless(HEAD, chunk.into_bytes()).await;
        let (received, outcome) = stream(&model(&base_url)).await;
        let error = outcome.unwrap_err();
        assert!(format!("{error:?}").ends_with("the stream is longer than 67108864 bytes"), "{error:?}");
        assert_eq!(error.partial().unwrap().message.text, received.text);
        assert_eq!(!received.text.is_empty(), has_text);
        assert!(written.await.unwrap() < (64 << 20) + SYSTEM_BUFFERS);
    }
}

/// Endless informational responses do not extend the time within which an answer has to start.
#[tokio::test]
async fn times_out_if_an_answer_never_starts() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        read_request(&mut connection).await;
        tokio::time::pause();
        while connection.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_ok() {
            tokio::time::sleep(READ_TIMEOUT / 20).await;
        }
    });
    let (_, outcome) = stream(&model(&base_url)).await;
    let error = outcome.unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
    server.await.unwrap();
}

/// The timeout applies to each read, not to the whole answer.
#[tokio::test]
async fn the_read_timeout_applies_to_each_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (parts, mut next_part) = tokio::sync::mpsc::unbounded_channel::<&str>();
    let server = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        read_request(&mut connection).await;
        while let Some(part) = next_part.recv().await {
            connection.write_all(part.as_bytes()).await.unwrap();
        }
    });
    parts.send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n\r\n").unwrap();
    let model = model(&base_url);
    let request = ChatRequest::new([Message::user("Hello")]);
    let mut deltas = model.stream(&request);
    for _ in 0..3 {
        parts.send("data: {\"choices\":[{\"delta\":{\"content\":\"Ebb\"}}]}\n\n").unwrap();
        assert_eq!(deltas.next().await.unwrap().unwrap(), Delta::Text("Ebb".into()));
        pass(READ_TIMEOUT * 3 / 4).await;
    }
    parts.send("data: [DONE]\n\n").unwrap();
    drop(parts);
    let Delta::Done(response) = deltas.next().await.unwrap().unwrap() else {
        panic!("the stream has an end")
    };
    assert_eq!(response.message.text, "EbbEbbEbb");
    server.await.unwrap();
}

#[tokio::test]
async fn reports_a_compressed_answer() {
    let gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x4b, 4, 0];
    for content_type in ["text/event-stream", "application/json"] {
        let head = format!("content-type: {content_type}\r\ncontent-encoding: gzip");
        let error = answer_with(&head, &gzip).await.1.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidResponse);
        let expected = ": the response is compressed (gzip), although the request does not accept that; turn compression off in the server or its proxy";
        assert!(error.to_string().ends_with(expected), "{error}");
    }
    let plain = "data: {\"choices\":[{\"delta\":{\"content\":\"Ebb\"}}]}\n\ndata: [DONE]\n\n";
    let head = format!("{EVENTS}\r\ncontent-encoding: identity");
    assert_eq!(answer_with(&head, plain.as_bytes()).await.1.unwrap().message.text, "Ebb");
}

/// Lists nested thousands of levels deep, in every position of a value.
#[tokio::test]
async fn deeply_nested_values_do_not_overflow_the_stack() {
    let depth = size(8_000, 100_000);
    let lists = "[".repeat(depth) + &"]".repeat(depth);
    let objects = r#"{"a":"#.repeat(depth) + "1" + &"}".repeat(depth);
    let parts = r#"{"thinking":"#.repeat(depth) + "1" + &"}".repeat(depth);
    for deep in [lists, objects, parts] {
        let places = [
            format!(r#"{{"choices":[{{"delta":{{"content":"Ebb","x":{deep}}},"finish_reason":"stop"}}]}}"#),
            format!(r#"{{"choices":[{{"delta":{{"content":{deep}}},"finish_reason":"stop"}}]}}"#),
            format!(r#"{{"choices":[{{"delta":{{"extra_content":{deep}}},"finish_reason":"stop"}}]}}"#),
            format!(
                r#"{{"choices":[{{"delta":{{"reasoning_details":[{{"x":{deep}}},{deep}]}},"finish_reason":"stop"}}]}}"#
            ),
            format!(
                r#"{{"choices":[{{"delta":{{"tool_calls":[{{"function":{{"name":"x","arguments":{deep}}}}}]}},"finish_reason":"stop"}}]}}"#
            ),
            format!(
                r#"{{"choices":[{{"delta":{{"tool_calls":{deep}}},"logprobs":{deep},"finish_reason":{deep}}}],"usage":{deep}}}"#
            ),
            format!(r#"{{"choices":{deep},"id":{deep},"x":{deep}}}"#),
            format!(r#"{{"error":{deep}}}"#),
            deep,
        ];
        for place in places {
            let name = &place[..60];
            for (head, body) in
                [(EVENTS, format!("data: {place}\n\n")), ("content-type: application/json", place.clone())]
            {
                if let Err(error) = answer_with(head, body.as_bytes()).await.1 {
                    let is_typed = is_response_error(&error);
                    assert!(is_typed, "{name}: {error:?}");
                }
            }
        }
    }
}

/// Stored lists have a maximum length, because each entry takes more memory than its text.
#[tokio::test]
async fn rejects_lists_with_too_many_elements() {
    let nothing = vec!["{}"; size(20_000, 100_000)].join(",");
    for field in ["tool_calls", "reasoning_details"] {
        let chunk = format!(r#"data: {{"choices":[{{"delta":{{"{field}":[{nothing}]}}}}]}}"#);
        let error = answer_with(EVENTS, format!("{chunk}\n\n").as_bytes()).await.1.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidResponse, "{error:?}");
        assert!(error.to_string().contains("elements"), "{error}");
    }
    let call = r#"data: {"choices":[{"delta":{"tool_calls":[{"id":"ID","function":{"name":"x"}}]}}]}"#;
    let calls: String = (0..2000).map(|id| call.replace("ID", &id.to_string()) + "\n\n").collect();
    let error = answer_with(EVENTS, calls.as_bytes()).await.1.unwrap_err();
    assert!(error.to_string().contains("more than 1024 tool calls"), "{error}");
}

#[tokio::test]
async fn accepts_a_huge_event() {
    let text = "a".repeat(size(4 << 20, 32 << 20));
    let body =
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\ndata: [DONE]\n\n");
    let (received, outcome) = answer_with(EVENTS, body.as_bytes()).await;
    assert!(outcome.unwrap().message.text == text && received.text == text);
}
