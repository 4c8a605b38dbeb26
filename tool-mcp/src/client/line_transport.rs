//! Messages over a pipe, one per line, of bounded length.

use std::collections::HashSet;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

use super::envelope::{Envelope, without_the_deepest};
use super::error::UNREADABLE;
use super::inbox::Inbox;

type Reader = Pin<Box<dyn AsyncRead + Send>>;
type Writer = Pin<Box<dyn AsyncWrite + Send>>;

/// How much is read at once, in bytes.
const BUFFER: usize = 1 << 16;

/// The protocol over a pair of pipes.
///
/// The SDK has such a transport, which drops what it cannot read, so that who waits for it waits in vain. Here the request
/// whose answer is too large, too deep or no JSON is answered with an error at once.
pub(super) struct Lines {
    reader: BufReader<Reader>,
    writer: Arc<tokio::sync::Mutex<Option<Writer>>>,
    longest: usize,
    line: Vec<u8>,
    /// The rest of a line that is too long passes by here.
    passing: Option<Envelope>,
    open: Arc<Mutex<HashSet<RequestId>>>,
    inbox: Arc<Inbox>,
}

impl Lines {
    pub(super) fn new(reader: Reader, writer: Writer, longest: usize, inbox: Arc<Inbox>) -> Self {
        Self {
            reader: BufReader::with_capacity(BUFFER, reader),
            writer: Arc::new(tokio::sync::Mutex::new(Some(writer))),
            longest,
            line: Vec::new(),
            passing: None,
            open: Arc::default(),
            inbox,
        }
    }

    /// The next line that is a message, or stands for one; `None` at the end.
    ///
    /// It may be dropped at any `await` and called anew: what was read is kept in `self`.
    async fn next(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let available = self.reader.fill_buf().await.ok().filter(|available| !available.is_empty())?;
            let end = memchr::memchr(b'\n', available);
            let piece = &available[..end.unwrap_or(available.len())];
            if let Some(envelope) = &mut self.passing {
                envelope.read(piece);
            } else if self.line.len() + piece.len() > self.longest {
                let mut envelope = Envelope::default();
                envelope.read(&self.line);
                envelope.read(piece);
                self.passing = Some(envelope);
                self.line = Vec::new();
            } else {
                self.line.extend_from_slice(piece);
            }
            let consumed = piece.len() + usize::from(end.is_some());
            self.reader.consume(consumed);
            if end.is_none() {
                continue;
            }
            let message = match self.passing.take() {
                Some(envelope) => {
                    let message = format!("the answer is larger than {} bytes", self.longest);
                    self.in_its_place(envelope, message)
                }
                None => self.read_line(),
            };
            self.line.clear();
            if message.is_some() {
                return message;
            }
        }
    }

    fn read_line(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let line = self.line.trim_ascii();
        if line.is_empty() {
            return None;
        }
        if let Ok(message) = serde_json::from_slice(line) {
            return self.answered(message);
        }
        if let Ok(message) = serde_json::from_slice(&without_the_deepest(line)) {
            return self.answered(message);
        }
        let mut envelope = Envelope::default();
        envelope.read(line);
        self.in_its_place(envelope, "the answer is no message of the protocol".into())
    }

    /// The message, unless it answers what was not asked: to the SDK that is the end of a handshake.
    fn answered(&self, message: RxJsonRpcMessage<RoleClient>) -> Option<RxJsonRpcMessage<RoleClient>> {
        let id = match &message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            _ => None,
        };
        if id.is_some_and(|id| self.take_open(id).is_none()) {
            self.inbox.strays();
            return None;
        }
        Some(message)
    }

    /// The open request of this id, which is open no more. Some servers give a number back as a text.
    fn take_open(&self, id: &RequestId) -> Option<RequestId> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let number = || id.to_string().parse().ok().map(RequestId::Number);
        open.take(id).or_else(|| open.take(&number()?))
    }

    /// An error in the place of an answer that cannot be read; nothing if it is nobody's.
    fn in_its_place(&self, envelope: Envelope, message: String) -> Option<RxJsonRpcMessage<RoleClient>> {
        let Some(id) = envelope.answered().and_then(|id| self.take_open(&id)) else {
            self.inbox.strays();
            return None;
        };
        Some(unreadable(message, id))
    }
}

/// The error that stands for an answer which cannot be read.
pub(super) fn unreadable(message: String, id: RequestId) -> RxJsonRpcMessage<RoleClient> {
    let data = ErrorData::internal_error(message, Some(UNREADABLE.into()));
    JsonRpcMessage::error(data, Some(id))
}

impl Transport<RoleClient> for Lines {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        if let JsonRpcMessage::Request(request) = &message {
            self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(request.id.clone());
        }
        let writer = Arc::clone(&self.writer);
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let mut writer = writer.lock().await;
            let Some(writer) = writer.as_mut() else { return Err(io::ErrorKind::NotConnected.into()) };
            writer.write_all(&line).await?;
            writer.flush().await
        }
    }

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleClient>>> + Send {
        self.next()
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        // Who is in the middle of a line holds the writer, and drops it with the connection.
        if let Ok(mut writer) = self.writer.try_lock() {
            drop(writer.take());
        }
        Ok(())
    }
}
