//! A transport over a pair of byte streams: one message per line, of bounded length.
//!
//! The protocol is `rmcp`'s; the transports are ours, because `rmcp`'s drop messages that they cannot read, and callers would wait until
//! their timeout. Lines, responses, pages, tools and schemas are bounded around it.

use std::collections::HashSet;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{GetExtensions, JsonRpcMessage, RequestId};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Semaphore, oneshot};
use tool_core::CancellationToken;

use super::invalid_response::{NOT_A_MESSAGE, invalid_response, too_large};
use super::json_scan::{ResponseIdScanner, prune_deep_values};
use super::monitor::Monitor;
use super::process::Pipes;

/// The size of the read buffer, in bytes.
const BUFFER_BYTES: usize = 1 << 16;

/// The number of bytes that may wait until the server reads them. Further messages are refused.
const MAX_UNREAD_BYTES: usize = 1 << 26;

/// The memory for a message that waits, beside its text, in bytes.
const MESSAGE_OVERHEAD: usize = 1 << 10;

/// A transport that sends and receives one message per line.
///
/// The transport of the SDK drops responses that it cannot read, so that callers wait until their timeout. This one
/// immediately answers a request with an error if the response is too large or is not a valid message.
pub(super) struct LineTransport {
    reader: BufReader<Pin<Box<dyn AsyncRead + Send>>>,
    writer: Arc<tokio::sync::Mutex<Option<Writer>>>,
    /// One permit for each byte that may wait until the server reads it.
    unread: Arc<Semaphore>,
    max_message_bytes: usize,
    line: Vec<u8>,
    /// Scans the rest of a line that is too long.
    oversized: Option<ResponseIdScanner>,
    pending: Arc<Mutex<HashSet<RequestId>>>,
    monitor: Arc<Monitor>,
}

struct Writer {
    stream: Pin<Box<dyn AsyncWrite + Send>>,
    _process: Option<oneshot::Sender<()>>,
}

impl LineTransport {
    pub(super) fn new(pipes: Pipes, max_message_bytes: usize, monitor: Arc<Monitor>) -> Self {
        let writer = Writer { stream: pipes.writer, _process: pipes.process };
        Self {
            reader: BufReader::with_capacity(BUFFER_BYTES, pipes.reader),
            writer: Arc::new(tokio::sync::Mutex::new(Some(writer))),
            unread: Arc::new(Semaphore::new(MAX_UNREAD_BYTES)),
            max_message_bytes,
            line: Vec::new(),
            oversized: None,
            pending: Arc::default(),
            monitor,
        }
    }

    /// Returns the next message, or an error response in its place; `None` at the end of the stream.
    ///
    /// This is cancel safe: what was read is stored in `self`.
    async fn next(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let available = self.reader.fill_buf().await.ok().filter(|available| !available.is_empty())?;
            let end = memchr::memchr(b'\n', available);
            let chunk = &available[..end.unwrap_or(available.len())];
            if let Some(scanner) = &mut self.oversized {
                scanner.push(chunk);
            } else if self.line.len() + chunk.len() > self.max_message_bytes {
                let mut scanner = ResponseIdScanner::default();
                scanner.push(&self.line);
                scanner.push(chunk);
                self.oversized = Some(scanner);
                self.line = Vec::new();
            } else {
                self.line.extend_from_slice(chunk);
            }
            let consumed = chunk.len() + usize::from(end.is_some());
            self.reader.consume(consumed);
            if end.is_none() {
                continue;
            }
            let message = match self.oversized.take() {
                Some(scanner) => self.reject(scanner, too_large(self.max_message_bytes)),
                None => self.parse_line(),
            };
            self.line.clear();
            if message.is_some() {
                return message;
            }
        }
    }

    fn parse_line(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let line = self.line.trim_ascii();
        if line.is_empty() {
            return None;
        }
        if let Ok(message) = serde_json::from_slice(line) {
            return self.accept(message);
        }
        if let Ok(message) = serde_json::from_slice(&prune_deep_values(line)) {
            return self.accept(message);
        }
        let mut scanner = ResponseIdScanner::default();
        scanner.push(line);
        self.reject(scanner, NOT_A_MESSAGE.into())
    }

    /// Returns the message unless it answers no pending request: the SDK would abort a handshake because of it.
    fn accept(&self, message: RxJsonRpcMessage<RoleClient>) -> Option<RxJsonRpcMessage<RoleClient>> {
        let id = match &message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            _ => None,
        };
        if id.is_some_and(|id| self.take_pending(id).is_none()) {
            self.monitor.note_invalid_message();
            return None;
        }
        Some(message)
    }

    /// Returns an error response for the request that the unreadable message answers, if it answers one.
    fn reject(&self, scanner: ResponseIdScanner, reason: String) -> Option<RxJsonRpcMessage<RoleClient>> {
        let Some(id) = scanner.finish().and_then(|id| self.take_pending(&id)) else {
            self.monitor.note_invalid_message();
            return None;
        };
        Some(invalid_response(reason, id))
    }

    /// Removes a pending request and returns its id. Some servers return a numeric id as a string.
    fn take_pending(&self, id: &RequestId) -> Option<RequestId> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let number = || id.to_string().parse().ok().map(RequestId::Number);
        pending.take(id).or_else(|| pending.take(&number()?))
    }
}

impl Transport<RoleClient> for LineTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let mut ended = CancellationToken::new();
        if let JsonRpcMessage::Request(request) = &message {
            self.pending.lock().unwrap_or_else(PoisonError::into_inner).insert(request.id.clone());
            ended = request.request.extensions().get().cloned().unwrap_or(ended);
        }
        let (writer, unread) = (Arc::clone(&self.writer), Arc::clone(&self.unread));
        async move {
            let mut line = serde_json::to_vec(&message)?;
            drop(message);
            line.push(b'\n');
            let permits = (line.len() + MESSAGE_OVERHEAD).min(MAX_UNREAD_BYTES) as u32;
            let Ok(_permits) = unread.try_acquire_many(permits) else {
                let problem = "it does not read its input, and too many messages wait already";
                return Err(io::Error::new(io::ErrorKind::WouldBlock, problem));
            };
            let mut writer = tokio::select! {
                biased;
                // Nobody waits for the response any longer.
                () = ended.cancelled() => return Ok(()),
                writer = writer.lock() => writer,
            };
            let Some(writer) = writer.as_mut() else { return Err(io::ErrorKind::NotConnected.into()) };
            writer.stream.write_all(&line).await?;
            writer.stream.flush().await
        }
    }

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleClient>>> + Send {
        self.next()
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        // A task that is writing a line holds the lock, and drops the writer with the connection.
        if let Ok(mut writer) = self.writer.try_lock() {
            drop(writer.take());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::ClientRequest;
    use serde_json::json;
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};

    use super::*;
    use crate::quiet::SdkRuntime;

    /// Returns a request whose line has more than this number of bytes.
    fn request(id: u32, bytes: usize) -> TxJsonRpcMessage<RoleClient> {
        let params = json!({ "name": "echo", "arguments": { "text": "x".repeat(bytes) } });
        serde_json::from_value(
            json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }),
        )
        .unwrap()
    }

    /// Returns a request that is not sent once the token is cancelled.
    fn cancellable(id: u32, bytes: usize, token: &CancellationToken) -> TxJsonRpcMessage<RoleClient> {
        let mut request = request(id, bytes);
        let JsonRpcMessage::Request(message) = &mut request else { unreachable!("a request") };
        let ClientRequest::CallToolRequest(call) = &mut message.request else { unreachable!("a call") };
        call.extensions.insert(token.clone());
        request
    }

    /// Returns a transport and the server's end of it, which has a buffer of this size.
    fn transport(buffer: usize) -> (LineTransport, DuplexStream) {
        let (near, far) = duplex(buffer);
        let (reader, writer) = tokio::io::split(near);
        let pipes = Pipes { reader: Box::pin(reader), writer: Box::pin(writer), process: None };
        (LineTransport::new(pipes, 1 << 20, Monitor::new(None, None, SdkRuntime::Program)), far)
    }

    /// Its task may be scheduled only when the server reads again.
    #[tokio::test]
    async fn a_request_that_ended_is_not_sent_even_if_the_server_reads() {
        let (mut transport, mut far) = transport(1 << 16);
        let token = CancellationToken::new();
        token.cancel();
        for id in 0..50 {
            transport.send(cancellable(id, 1, &token)).await.unwrap();
        }
        drop(transport);
        assert_eq!(far.read_to_end(&mut Vec::new()).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn messages_that_the_server_does_not_read_are_bounded_and_freed() {
        let (mut transport, mut far) = transport(16);
        let (capacity, bytes) = (10_000, 3_000);
        transport.unread = Arc::new(Semaphore::new(capacity));
        let free = |transport: &LineTransport| transport.unread.available_permits();

        let being_written = tokio::spawn(transport.send(request(1, bytes)));
        let token = CancellationToken::new();
        let waiting = tokio::spawn(transport.send(cancellable(2, bytes, &token)));
        while free(&transport) > capacity - 2 * bytes {
            tokio::task::yield_now().await;
        }
        let error = transport.send(request(3, bytes)).await.unwrap_err();
        assert_eq!(error.to_string(), "it does not read its input, and too many messages wait already");

        token.cancel();
        waiting.await.unwrap().unwrap();
        let last = tokio::spawn(transport.send(request(4, bytes)));
        let mut lines = String::new();
        let reading = async {
            while lines.matches('\n').count() < 2 {
                lines.push(far.read_u8().await.unwrap().into());
            }
        };
        reading.await;
        being_written.await.unwrap().unwrap();
        last.await.unwrap().unwrap();
        let ids =
            lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].clone());
        assert_eq!(ids.collect::<Vec<_>>(), [1, 4]);
        assert_eq!(free(&transport), capacity);
    }
}
