//! The parts that clients share: connections, TLS, bodies, server-sent events and redaction, and for models retries, responses, streams
//! and errors.
//!
//! A client of a model's API needs its JSON and an [`Assembler`] for its responses; the rest is here. This is the client of an imaginary
//! API without tools, whose replies and events are `{"text": "…"}`; [`Error`] converts to a `ModelError` with its kind:
//!
//! ```no_run
//! use futures_util::{StreamExt, TryStreamExt, stream};
//! use serde_json::{Value, json};
//! use tool_core::ChatModel;
//! use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ChatStream, Delta};
//! use tool_core::provider::ModelFuture;
//! use tool_http::client::sse::Event;
//! use tool_http::client::{
//!     ApiResponse, Assembler, AuthScheme, Connection, ConnectionConfig, Error, EventError, FieldWriter, Flow, RetryPolicy,
//!     is_error_body,
//! };
//!
//! struct Acme {
//!     connection: Connection,
//!     model: String,
//! }
//!
//! impl Acme {
//!     fn from_env(model: &str) -> Result<Self, Error> {
//!         let settings = ConnectionConfig::from_env("ACME_API_KEY", "ACME_BASE_URL")?;
//!         let base_url = settings.base_url(Some("https://acme.example/v1"), "https://acme.example/v1", "/ask")?;
//!         let connection = settings.connect(base_url, AuthScheme::Bearer, Some("ACME_API_KEY"))?;
//!         Ok(Self { connection, model: model.into() })
//!     }
//!
//!     /// Sends a request, with retries.
//!     async fn send(&self, request: &ChatRequest<'_>, is_streamed: bool) -> Result<ApiResponse<'_>, Error> {
//!         let mut fields = FieldWriter::new(256, &request.options().extra);
//!         fields.write("model", Some(request.options().model.as_deref().unwrap_or(&self.model)))?;
//!         fields.write("stream", Some(is_streamed))?;
//!         // The caller's extra fields, and the start of the last field, whose value follows.
//!         let mut body = fields.finish("messages")?;
//!         body.json().extend_from_slice(json!(request.messages()).to_string().as_bytes());
//!         body.json().push(b'}');
//!         let (url, body) = (self.connection.url("ask"), body.finish());
//!
//!         let accept = if is_streamed { "text/event-stream" } else { "application/json" };
//!         let policy = RetryPolicy::default();
//!         let mut retries = policy.start();
//!         loop {
//!             match self.connection.send(&url, Some(&body), accept).await {
//!                 Ok(response) => return Ok(response),
//!                 // Waits, and counts the cost of the attempt; or returns the error.
//!                 Err(error) => retries.repeat(request, error).await?,
//!             }
//!         }
//!     }
//! }
//!
//! impl ChatModel for Acme {
//!     fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
//!         Box::pin(async move { Ok(self.send(request, false).await?.assemble(Reply::default()).await?) })
//!     }
//!
//!     fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
//!         let deltas = async move { Ok(self.send(request, true).await?.into_deltas(Reply::default())) };
//!         ChatStream::new(stream::once(deltas).try_flatten().map(|delta: Result<_, Error>| Ok(delta?)))
//!     }
//!
//!     fn model_name(&self) -> Option<&str> {
//!         Some(&self.model)
//!     }
//! }
//!
//! #[derive(Default)]
//! struct Reply {
//!     text: String,
//!     is_complete: bool,
//! }
//!
//! impl Assembler for Reply {
//!     fn push(&mut self, event: &Event<'_>, emit: &mut dyn FnMut(Delta)) -> Result<Flow, EventError> {
//!         if event.data == "[DONE]" {
//!             self.is_complete = true;
//!             return Ok(Flow::End);
//!         }
//!         let start = self.text.len();
//!         self.push_whole(&event.data)?;
//!         emit(Delta::Text(self.text[start..].to_owned()));
//!         Ok(Flow::Continue)
//!     }
//!
//!     fn push_whole(&mut self, json: &str) -> Result<(), EventError> {
//!         if is_error_body(json) {
//!             return Err(EventError::Api(json.to_owned()));
//!         }
//!         let json: Value = serde_json::from_str(json).map_err(|error| EventError::Malformed(error.to_string()))?;
//!         self.text.push_str(json["text"].as_str().ok_or(EventError::Empty)?);
//!         Ok(())
//!     }
//!
//!     fn has_started(&self) -> bool {
//!         !self.text.is_empty()
//!     }
//!
//!     fn is_complete(&self) -> bool {
//!         self.is_complete
//!     }
//!
//!     fn finish(self) -> ChatResponse {
//!         ChatResponse::new(AssistantMessage::text(self.text))
//!     }
//! }
//! ```
//!
//! The guide to providers is a page of [`ChatModel`](tool_core::ChatModel#a-provider-in-a-day).

mod redact;
pub mod json;
mod connect;
mod body;
mod request_body;
mod error_kind;
mod error_body;
mod retry_headers;
mod token_source;
mod error;
mod calls;
mod encoding_cache;
mod fields;
mod retry;
pub mod sse;
mod assembler;
mod response_context;
mod deltas;
mod response;
mod connection;
mod config;
mod signed_keys;

pub use self::assembler::{Assembler, EventError, Flow};
pub use self::body::{BodyStart, read_body};
pub use self::calls::{
    find_tool_violation, hash_call_id, is_name_char, is_object, normalize_arguments, normalize_tool_name,
};
pub use self::config::{AuthScheme, ConnectionConfig, read_variable};
pub use self::connect::{TlsError, is_loopback, new_client, sources};
pub use self::connection::{Connection, ResponseHook};
pub use self::deltas::Deltas;
pub use self::encoding_cache::EncodingCache;
pub use self::error::Error;
pub use self::error_body::is_error_body;
pub use self::error_kind::{ErrorKind, ErrorKinds};
pub use self::fields::FieldWriter;
pub use self::redact::{Redactor, redact_url, redact_urls};
pub use self::request_body::{AppendBuffer, BodyWriter, RequestBody};
pub use self::response::ApiResponse;
pub use self::retry::{Retries, Retry, RetryBudget, RetryHook, RetryPolicy, count_attempt};
pub use self::signed_keys::{AwsCredentials, SignedKeyForm, signed_keys};
pub use self::token_source::{Token, TokenSource};
