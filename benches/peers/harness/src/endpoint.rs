//! An endpoint in another process, so that only the client is measured. Its replies are built beforehand.

use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::{ANSWER, INSTRUCTIONS, MODEL, QUESTION, tools};

/// The prefix of call ids; the number of the call follows.
const ID: &str = "call_abcdefghijkl";

/// A running endpoint, which is stopped when this is dropped.
pub(crate) struct Endpoint {
    process: Child,
    pub(crate) base_url: String,
}

impl Endpoint {
    /// Starts an endpoint that calls `calls` tools, one per turn, and then answers.
    pub(crate) fn start(calls: u32) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut process = command.args(["endpoint", &calls.to_string()]).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("it is piped")).read_line(&mut line)?;
        Ok(Self { process, base_url: line.trim().to_owned() })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// Serves until the process is stopped.
pub(crate) fn serve(calls: u32) -> io::Result<()> {
    let replies: Arc<[Vec<u8>]> = (1..=calls).map(call).chain([answer()]).collect();
    tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("http://{}/v1", listener.local_addr()?);
        loop {
            tokio::spawn(serve_connection(listener.accept().await?.0, Arc::clone(&replies)));
        }
    })
}

async fn serve_connection(mut stream: TcpStream, replies: Arc<[Vec<u8>]>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut request = Vec::with_capacity(1 << 18);
    loop {
        request.clear();
        let mut whole = None;
        while whole.is_none_or(|(start, length)| request.len() < start + length) {
            if stream.read_buf(&mut request).await? == 0 {
                return Ok(());
            }
            whole = whole.or_else(|| body(&request));
        }
        let calls = calls_in(&request);
        let is_last = calls + 1 == replies.len();
        if is_last && whole.is_none_or(|(start, _)| !is_whole(&request[start..], calls as u32)) {
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await?;
        } else {
            stream.write_all(&replies[calls]).await?;
        }
    }
}

/// Returns the start and the length of the body, once the head has arrived.
fn body(request: &[u8]) -> Option<(usize, usize)> {
    let end = request.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&request[..end]).ok()?;
    let headers = head.lines().filter_map(|line| line.split_once(':'));
    let length = headers.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"))?.1;
    Some((end + 4, length.trim().parse().ok()?))
}

/// Returns the number of the last call whose result is in the request.
fn calls_in(request: &[u8]) -> usize {
    let id = request.windows(ID.len()).rposition(|bytes| bytes == ID.as_bytes());
    let digits = id.map_or(&[][..], |id| &request[id + ID.len()..]);
    let digits = digits.iter().take_while(|digit| digit.is_ascii_digit());
    digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
}

/// Returns whether the last request has all tools and the whole history.
fn is_whole(body: &[u8], calls: u32) -> bool {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let list = |key: &str| body[key].as_array().cloned().unwrap_or_default();
    let tools: Vec<_> = list("tools").iter().map(|tool| tool["function"]["name"].clone()).collect();
    let history: Vec<_> = list("messages").iter().map(essence).collect();
    let turn = |call| {
        let id = format!("{ID}{call}");
        [json!([id, name(call), tools::arguments(call)]), json!([id, tools::expected(call)])]
    };
    let start = [json!(INSTRUCTIONS), json!(QUESTION)];
    let expected: Vec<_> = start.into_iter().chain((1..=calls).flat_map(turn)).collect();
    body["model"] == MODEL && tools == tools::NAMES && history == expected
}

/// Returns the call of a message, its result or its text, whose form differs among the programs.
fn essence(message: &Value) -> Value {
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let call = &message["tool_calls"][0];
    if let Some(arguments) = call["function"]["arguments"].as_str() {
        json!([call["id"], call["function"]["name"], parse(arguments)])
    } else if message["tool_call_id"].is_string() {
        json!([message["tool_call_id"], parse(&text(&message["content"]))])
    } else {
        json!(text(&message["content"]))
    }
}

/// Returns the text of a message, which is a string or a list of parts.
fn text(content: &Value) -> String {
    match content {
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        content => content.as_str().unwrap_or_default().to_owned(),
    }
}

fn name(call: u32) -> &'static str {
    tools::NAMES[call as usize % tools::NAMES.len()]
}

fn call(number: u32) -> Vec<u8> {
    let function = json!({ "name": name(number), "arguments": tools::arguments(number).to_string() });
    let calls = json!([{ "id": format!("{ID}{number}"), "type": "function", "function": function }]);
    let message = json!({ "role": "assistant", "content": null, "refusal": null, "tool_calls": calls });
    reply(&message, "tool_calls")
}

fn answer() -> Vec<u8> {
    reply(&json!({ "role": "assistant", "content": ANSWER, "refusal": null, "annotations": [] }), "stop")
}

fn reply(message: &Value, finish_reason: &str) -> Vec<u8> {
    let body = json!({
        "id": "chatcmpl-ABCDEFGHIJKLMNOPQRSTUVWXYZ123",
        "object": "chat.completion",
        "created": 1_741_569_952,
        "model": MODEL,
        "choices": [{ "index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason }],
        "usage": {
            "prompt_tokens": 1_000,
            "completion_tokens": 41,
            "total_tokens": 1_041,
            "prompt_tokens_details": { "cached_tokens": 0, "audio_tokens": 0 },
            "completion_tokens_details": { "reasoning_tokens": 0, "audio_tokens": 0 },
        },
        "service_tier": "default",
        "system_fingerprint": "fp_0123456789",
    });
    let body = body.to_string();
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}
