//! The parts that clients share: connections, TLS, bodies, server-sent events, retries, errors and redaction.
//!
//! A client of an API needs its own error type, its URLs and its JSON; the rest is here:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use tool_http::client::{
//!     BadResponse, ConnectionConfig, ErrorBody, ErrorKind, FieldWriter, KeyHeader, RetryHeaders, RetryPolicy, Retryable,
//!     SendError, key_from_env, parse_base_url, read_body,
//! };
//!
//! #[derive(Debug)]
//! struct Error {
//!     kind: ErrorKind,
//!     message: String,
//!     retry: RetryHeaders,
//! }
//!
//! impl Error {
//!     fn new(kind: ErrorKind, message: impl ToString) -> Self {
//!         Self { kind, message: message.to_string(), retry: RetryHeaders::default() }
//!     }
//! }
//!
//! impl Retryable for Error {
//!     fn is_retryable(&self) -> bool {
//!         let is_lost = matches!(self.kind, ErrorKind::Connect | ErrorKind::Transport);
//!         is_lost || self.retry.allow_retry_after(self.kind)
//!     }
//!
//!     fn retry_after(&self) -> Option<Duration> {
//!         self.retry.after
//!     }
//! }
//!
//! /// Sends a question, and returns the body of the response.
//! async fn ask(question: &str) -> Result<Vec<u8>, Error> {
//!     let config = |error: tool_http::client::ConfigError| Error::new(ErrorKind::Config, error.0);
//!     let key = key_from_env(Some("ACME_API_KEY")).map_err(config)?;
//!     let settings = ConnectionConfig { key: Some((KeyHeader::Bearer, key)), ..ConnectionConfig::default() };
//!     let base_url = parse_base_url("https://api.acme.example/v1", "https://api.acme.example/v1").map_err(config)?;
//!     let connection = settings.connect(base_url).map_err(config)?;
//!
//!     let extra = serde_json::Map::new();
//!     let mut body = FieldWriter::new(256, &extra).finish("question").map_err(|error| {
//!         Error::new(ErrorKind::InvalidRequest, error.0)
//!     })?;
//!     body.json().extend_from_slice(serde_json::json!(question).to_string().as_bytes());
//!     body.json().push(b'}');
//!     let body = body.finish();
//!
//!     let (connection, body) = (&connection, &body);
//!     let attempt = || async move {
//!         match connection.send(connection.url("ask"), Some(body), "application/json").await {
//!             Ok(mut success) => {
//!                 let body = read_body(&mut success.response, 1 << 20).await;
//!                 body.map(|body| body.bytes.to_vec()).map_err(|error| Error::new(ErrorKind::Transport, error))
//!             }
//!             Err(SendError::Transport(error)) => Err(Error::new(ErrorKind::Connect, error.without_url())),
//!             Err(SendError::Response { headers, reason: BadResponse::Status(status, body) }) => {
//!                 let text = connection.redact(&String::from_utf8_lossy(&body));
//!                 let message = ErrorBody::parse(&text).map_or(text, |error| error.message);
//!                 let kind = ErrorKind::from_status(status.as_u16());
//!                 Err(Error { retry: RetryHeaders::from_headers(&headers), ..Error::new(kind, message) })
//!             }
//!             Err(SendError::Response { reason, .. }) => {
//!                 Err(Error::new(ErrorKind::InvalidResponse, format!("{reason:?}")))
//!             }
//!         }
//!     };
//!     RetryPolicy::default().run(attempt).await
//! }
//! ```

mod redact;
mod connect;
mod body;
mod request_body;
mod fields;
mod error_body;
mod error_kind;
mod retry;
mod connection;
pub mod sse;
pub mod assembler;

pub use self::body::{BodyStart, read_body};
pub use self::connect::{TlsError, is_loopback, new_client, root_cause};
pub use self::connection::{
    BadResponse, ConfigError, Connection, ConnectionConfig, KeyHeader, SendError, Success, key_from_env,
    parse_base_url, read_variable,
};
pub use self::error_body::{
    ErrorBody, MAX_EXCERPT_CHARS, MAX_MESSAGE_CHARS, error_name, excerpt, malformed_body,
};
pub use self::error_kind::ErrorKind;
pub use self::fields::{FieldError, FieldWriter};
pub use self::redact::{Redactor, redact_url, redact_urls};
pub use self::request_body::{AppendBuffer, BodyWriter, RequestBody};
pub use self::retry::{Retries, Retry, RetryBudget, RetryHeaders, RetryHook, RetryPolicy, Retryable};
