//! An endpoint that answers immediately: its answers are built beforehand, and it reads only what it needs of a request.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::tools;

pub(crate) const ANSWER: &str = "The Albergo del Sole.";

/// The number of tokens of one reply.
pub(crate) const TOKENS: u64 = 1_041;

/// The prefix of call ids; the number of the call follows.
const ID: &str = "call_abcdefghijkl";

/// The length of a request's end that contains the id of the last result.
const TAIL: usize = 512;

/// Starts an endpoint on a separate thread, which lives as long as the program. It calls `calls` tools, one per turn, and
/// then answers. It reads the progress of a run from the request, so runs can share connections.
pub(crate) fn start(calls: u32) -> io::Result<String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address: SocketAddr = listener.local_addr()?;
    let replies: Arc<[Vec<u8>]> = (1..=calls).map(call).chain([answer()]).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).expect("the listener is non-blocking");
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&replies)));
            }
        });
    });
    Ok(format!("http://{address}/v1"))
}

async fn serve(mut stream: TcpStream, replies: Arc<[Vec<u8>]>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut request = Vec::with_capacity(1 << 18);
    loop {
        request.clear();
        let mut whole = None;
        while whole.is_none_or(|whole| request.len() < whole) {
            if stream.read_buf(&mut request).await? == 0 {
                return Ok(());
            }
            whole = whole.or_else(|| request_length(&request));
        }
        stream.write_all(&replies[calls_in(&request)]).await?;
    }
}

/// Returns the length of a request including its head, once the head has arrived.
fn request_length(request: &[u8]) -> Option<usize> {
    let end = request.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&request[..end]).ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    Some(end + 4 + length.parse::<usize>().ok()?)
}

/// Returns the number of the last call whose result is in the request.
fn calls_in(request: &[u8]) -> usize {
    let tail = &request[request.len().saturating_sub(TAIL)..];
    let id = tail.windows(ID.len()).rposition(|bytes| bytes == ID.as_bytes());
    let digits = id.map_or(&[][..], |id| &tail[id + ID.len()..]);
    digits
        .iter()
        .take_while(|digit| digit.is_ascii_digit())
        .fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
}

fn call(number: u32) -> Vec<u8> {
    let name = tools::NAMES[number as usize % tools::NAMES.len()];
    let arguments = json!({
        "filter": { "city": "Rome", "guests": 4, "most_per_night": 150.0, "comforts": ["breakfast", "garden"] },
        "page": number,
    });
    let function = json!({ "name": name, "arguments": arguments.to_string() });
    let calls = json!([{ "id": format!("{ID}{number}"), "type": "function", "function": function }]);
    reply(
        &json!({ "role": "assistant", "content": null, "refusal": null, "tool_calls": calls }),
        "tool_calls",
    )
}

fn answer() -> Vec<u8> {
    reply(&json!({ "role": "assistant", "content": ANSWER, "refusal": null, "annotations": [] }), "stop")
}

fn reply(message: &serde_json::Value, finish_reason: &str) -> Vec<u8> {
    let body = json!({
        "id": "chatcmpl-ABCDEFGHIJKLMNOPQRSTUVWXYZ123",
        "object": "chat.completion",
        "created": 1_741_569_952,
        "model": super::MODEL,
        "choices": [{ "index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason }],
        "usage": {
            "prompt_tokens": 1_000,
            "completion_tokens": TOKENS - 1_000,
            "total_tokens": TOKENS,
            "prompt_tokens_details": { "cached_tokens": 0, "audio_tokens": 0 },
            "completion_tokens_details": { "reasoning_tokens": 0, "audio_tokens": 0 },
        },
        "service_tier": "default",
        "system_fingerprint": "fp_0123456789",
    });
    let body = body.to_string();
    let length = body.len();
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
    (head + &body).into_bytes()
}
