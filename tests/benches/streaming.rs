//! Cost of reading a streamed answer of 10,000 chunks, compared with serde_json reading the same chunks as typed structs.
//! `cargo bench -p tests --bench streaming` prints the figures, and fails if one exceeds its bound.
//!
//! The endpoint is on this machine, with prepared answers and its own thread. For the client, the CPU time of its thread is
//! measured, which includes the kernel, HTTP, events, deltas and the complete response; serde_json only parses text that is
//! in memory. The growth of time and allocations with the length of a call's arguments is measured in the same way. The time
//! to the first delta is compared with the time to the first byte of the same answer on a plain socket.

#[path = "loops/clock.rs"]
#[allow(dead_code, reason = "the notes are for loops")]
mod clock;

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;
use tool_core::model::{ChatRequest, ChatResponse, Delta};
use tool_core::{ChatModel, Message};
use tool_openai::{ChatCompletions, OpenAi};

const ROUNDS: usize = 41;
const CHUNKS: usize = 10_000;

/// The bounds on the speed: at least this many megabytes per second, or at most this ratio to serde_json's time.
const MIN_SPEED: f64 = 200.0;
const MAX_TIME: f64 = 1.3;

/// The bound on the growth of time and allocated bytes for arguments ten times as long.
const MAX_GROWTH: f64 = 13.0;

/// The bound on the delay between the first byte and the first delta.
const MAX_DELAY: Duration = Duration::from_millis(1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut is_within = true;

    println!("median of {ROUNDS} rounds: MB/s of our client, of serde_json, ratio of the times; bounds");
    for (title, answer) in [("text", text(CHUNKS)), ("arguments", arguments(CHUNKS))] {
        let client = model(serve(answer.clone())?)?;
        let ours = || seconds(|| drop(black_box(runtime.block_on(read(&client)))));
        let serde = || seconds(|| assert_eq!(read_typed(&answer), CHUNKS));
        assert!(runtime.block_on(read(&client)).finish_reason.is_truncated());
        let rounds: Vec<_> = (0..ROUNDS).map(|_| [ours(), serde()]).collect();
        let megabytes = answer.len() as f64 / 1e6;
        let [speed, serde_speed] =
            [0, 1].map(|side| median(rounds.iter().map(|round| megabytes / round[side])));
        let share = median(rounds.iter().map(|[ours, serde]| ours / serde));
        println!("{title:<10} {speed:>7.0} {serde_speed:>7.0}  {share:.2}  {MIN_SPEED}, or {MAX_TIME}");
        is_within &= speed >= MIN_SPEED || share <= MAX_TIME;
    }

    let lengths = [CHUNKS / 10, CHUNKS];
    let clients =
        lengths.map(|chunks| Ok::<_, Box<dyn std::error::Error>>(model(serve(arguments(chunks))?)?));
    let [short, long] = clients;
    let (short, long) = (short?, long?);
    let time = |client| median((0..ROUNDS).map(|_| seconds(|| drop(runtime.block_on(read(client))))));
    let bytes = |client| {
        let count = allocation_counter::measure(|| drop(runtime.block_on(read(client))));
        count.bytes_total as f64
    };
    let growth = [time(&long) / time(&short), bytes(&long) / bytes(&short)];
    println!("ten times the arguments: time, bytes allocated; bound");
    println!("{:>10.2} {:>7.2}  {MAX_GROWTH}", growth[0], growth[1]);
    is_within &= growth.iter().all(|growth| *growth <= MAX_GROWTH);

    let address = serve(text(2))?;
    let client = model(address)?;
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    let rounds = (0..ROUNDS * 10).map(|_| [first_delta(&runtime, &client), first_byte(&mut socket)]);
    let rounds: Vec<_> = rounds.map(|round| round.map(|time| time.as_secs_f64() * 1e6)).collect();
    let [ours, socket_time] = [0, 1].map(|side| median(rounds.iter().map(|round| round[side])));
    println!("microseconds to the first delta, to the first byte; bound on the difference");
    println!("{ours:>10.0} {socket_time:>7.0}  {}", MAX_DELAY.as_micros());
    is_within &= ours - socket_time < MAX_DELAY.as_secs_f64() * 1e6;

    if is_within { Ok(()) } else { Err("a figure exceeds its bound".into()) }
}

/// Returns a streamed answer with `chunks` chunks and the given deltas.
fn answer(chunks: usize, delta: impl Fn(usize) -> serde_json::Value) -> String {
    let chunk = |delta: serde_json::Value, reason: Option<&str>| {
        let chunk = json!({
            "id": "chatcmpl-A1b2C3d4E5", "object": "chat.completion.chunk", "created": 1_755_000_000,
            "model": "gpt-4o-mini-2024-07-18", "service_tier": "default", "system_fingerprint": "fp_51db84afab",
            "choices": [{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": reason }],
            "usage": null,
        });
        format!("data: {chunk}\n\n")
    };
    let chunks = (0..chunks - 1).map(|number| chunk(delta(number), None));
    chunks.chain([chunk(json!({}), Some("length")), "data: [DONE]\n\n".into()]).collect()
}

fn text(chunks: usize) -> String {
    const WORDS: [&str; 6] = [" tide", " tables", ",\n\n", " repeat", " \u{2014}", " every"];
    answer(chunks, |number| json!({ "content": WORDS[number % WORDS.len()] }))
}

fn arguments(chunks: usize) -> String {
    answer(chunks, |number| match number {
        0 => json!({ "tool_calls": [{
            "index": 0, "id": "call_pQ7w2", "type": "function",
            "function": { "name": "file_report", "arguments": "{\"text\":\"" },
        }] }),
        _ => {
            let fragment = if number % 5 == 0 { "\\\"quoted\\\" " } else { "neap tide " };
            json!({ "tool_calls": [{ "index": 0, "function": { "arguments": fragment } }] })
        }
    })
}

/// Starts a server that answers each request with `answer`, and returns its address.
fn serve(answer: String) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
    let answer = format!("{head}content-length: {}\r\n\r\n{answer}", answer.len());
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || serve_one(connection, &answer));
        }
    });
    Ok(address)
}

fn serve_one(mut connection: TcpStream, answer: &str) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let mut request = [0; 4096];
    loop {
        let mut length = 0;
        while !request[..length].ends_with(b"}") {
            match connection.read(&mut request[length..])? {
                0 => return Ok(()),
                count => length += count,
            }
        }
        connection.write_all(answer.as_bytes())?;
    }
}

fn model(address: SocketAddr) -> Result<ChatCompletions, tool_openai::Error> {
    Ok(OpenAi::builder().base_url(format!("http://{address}/v1")).build()?.chat_model("m"))
}

async fn read(model: &ChatCompletions) -> ChatResponse {
    let request = ChatRequest::new([Message::user("Hello")]);
    let mut deltas = model.stream(&request);
    loop {
        match deltas.next().await.expect("the stream has an end").expect("the endpoint answers") {
            Delta::Done(response) => return response,
            delta => drop(black_box(delta)),
        }
    }
}

/// A chunk as a client for only this API would declare it.
#[derive(Deserialize)]
#[expect(dead_code, reason = "only parsed")]
struct Chunk {
    id: String,
    object: String,
    created: u64,
    model: String,
    service_tier: Option<String>,
    system_fingerprint: Option<String>,
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only parsed")]
struct Choice {
    index: u32,
    delta: ChoiceDelta,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only parsed")]
struct ChoiceDelta {
    role: Option<String>,
    content: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<Vec<Call>>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only parsed")]
struct Call {
    index: u32,
    id: Option<String>,
    r#type: Option<String>,
    function: Option<Function>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only parsed")]
struct Function {
    name: Option<String>,
    arguments: Option<String>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only parsed")]
struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
}

/// Parses the chunks of an answer and returns their number.
fn read_typed(answer: &str) -> usize {
    let events = answer.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    let mut chunks = 0;
    for data in events.filter(|data| *data != "[DONE]") {
        black_box(serde_json::from_str::<Chunk>(data).expect("the data is a chunk"));
        chunks += 1;
    }
    chunks
}

fn first_delta(runtime: &tokio::runtime::Runtime, model: &ChatCompletions) -> Duration {
    runtime.block_on(async {
        let request = ChatRequest::new([Message::user("Hello")]);
        let clock = Instant::now();
        let mut deltas = model.stream(&request);
        let first = deltas.next().await;
        let time = clock.elapsed();
        assert!(matches!(first, Some(Ok(Delta::Text(_)))));
        // Reads to the end, so that the connection is reused.
        while deltas.next().await.is_some() {}
        time
    })
}

fn first_byte(socket: &mut TcpStream) -> Duration {
    let clock = Instant::now();
    socket
        .write_all(b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}")
        .expect("the connection is open");
    let mut byte = [0; 1];
    socket.read_exact(&mut byte).expect("the endpoint answers");
    let time = clock.elapsed();
    // Both chunks arrive in a single read.
    let mut rest = [0; 4096];
    let _ = socket.read(&mut rest).expect("the endpoint answers");
    time
}

fn seconds(act: impl FnOnce()) -> f64 {
    let start = clock::thread_cpu_time();
    act();
    (clock::thread_cpu_time() - start).as_secs_f64()
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
