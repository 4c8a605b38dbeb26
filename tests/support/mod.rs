//! Test servers, checks against the published schemas, and ways to drive a run.

pub mod checked;
pub mod deciding;
pub mod mcp_served;
pub mod sampling;
pub mod schema;
pub mod stores;
pub mod ways;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A server that answers every connection with given bytes and records the requests.
///
/// Checks the requests against the published schemas when it is dropped.
#[derive(Debug)]
pub struct RawServer {
    /// The address that it listens on.
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    is_checked: bool,
    task: JoinHandle<()>,
}

impl RawServer {
    /// Answers every connection with these parts and pauses after each.
    pub async fn start(parts: Vec<Vec<u8>>, pause: Duration) -> Self {
        Self::serve(std::iter::repeat(parts), pause, true).await
    }

    /// Answers each connection with the next of these answers, and further connections with nothing.
    pub async fn answering_in_turn(answers: Vec<Vec<u8>>) -> Self {
        Self::serve(answers.into_iter().map(|answer| vec![answer]), Duration::ZERO, true).await
    }

    /// The same, for requests to a model: there is nothing else to read, and who tries is not among the requests.
    pub async fn replying_in_turn(answers: Vec<Vec<u8>>) -> Self {
        Self::replying_from(answers.into_iter()).await
    }

    /// Replies to each request to a model with the next of these answers, which is taken once the request is there.
    pub async fn replying_from(answers: impl Iterator<Item = Vec<u8>> + Send + 'static) -> Self {
        Self::serve(answers.map(|answer| vec![answer]), Duration::ZERO, false).await
    }

    async fn serve(
        mut answers: impl Iterator<Item = Vec<Vec<u8>>> + Send + 'static,
        pause: Duration,
        can_be_read: bool,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read_request(&mut stream).await;
                if request.starts_with("GET") && !can_be_read {
                    let _ = stream.write_all(&whole_answer("404 Not Found", &[], b"")).await;
                    continue;
                }
                seen.lock().unwrap().push(request);
                for part in &answers.next().unwrap_or_default() {
                    if stream.write_all(part).await.is_err() {
                        break;
                    }
                    if !pause.is_zero() {
                        tokio::time::sleep(pause).await;
                    }
                }
                let _ = stream.shutdown().await;
            }
        });
        Self { address, requests, is_checked: true, task }
    }

    /// Answers every connection with this body and a status such as `200 OK`.
    pub async fn answering(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Self {
        Self::start(vec![whole_answer(status, headers, body)], Duration::ZERO).await
    }

    /// Disables the check of requests, for servers that deviate from the published API.
    pub fn unchecked(mut self) -> Self {
        self.is_checked = false;
        self
    }

    /// Returns the base URL for a client.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns the requests so far, head and body.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.task.abort();
        if std::thread::panicking() || !self.is_checked {
            return;
        }
        for request in self.requests() {
            let Some((head, body)) = request.split_once("\r\n\r\n") else { continue };
            let path = head.split(' ').nth(1).unwrap_or_default();
            if let Some(api) = schema::Api::from_path(path) {
                schema::check_request(api, body.as_bytes());
            }
        }
    }
}

/// Returns an answer whose body ends with the connection.
pub fn whole_answer(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\n");
    for (name, value) in headers {
        answer.push_str(&format!("{name}: {value}\r\n"));
    }
    answer.push_str("\r\n");
    let mut answer = answer.into_bytes();
    answer.extend_from_slice(body);
    answer
}

/// Returns a streamed answer whose chunks the client reads one by one.
pub fn chunked_answer<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n";
    let mut answer = format!("{head}transfer-encoding: chunked\r\n\r\n").into_bytes();
    for chunk in chunks {
        answer.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        answer.extend_from_slice(chunk);
        answer.extend_from_slice(b"\r\n");
    }
    answer.extend_from_slice(b"0\r\n\r\n");
    answer
}

/// Lets this much time pass at once for all timers of the runtime, which runs on the current thread.
pub async fn pass(duration: Duration) {
    tokio::time::pause();
    tokio::time::advance(duration).await;
    tokio::time::resume();
}

async fn read_request(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).await.unwrap_or(0);
        request.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&request);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return text.into_owned();
            }
        }
        if count == 0 {
            return text.into_owned();
        }
    }
}
