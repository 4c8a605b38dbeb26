//! The parts that clients share: connections, TLS, bodies, server-sent events and redaction, and for models retries, responses, streams
//! and errors.
//!
//! A client of a model's API needs its JSON and an [`Assembler`] for its responses; the rest is here:
//!
//! ```no_run
//! use serde_json::json;
//! use tool_core::model::{ChatRequest, ChatResponse};
//! use tool_http::client::{
//!     Assembler, ConnectionConfig, Error, FieldWriter, KeyHeader, RetryPolicy,
//! };
//!
//! /// Asks for an answer, with retries.
//! async fn ask<A: Assembler>(request: &ChatRequest<'_>, assembler: fn() -> A) -> Result<ChatResponse, Error> {
//!     let settings = ConnectionConfig::from_env("ACME_API_KEY", "ACME_BASE_URL")?;
//!     let base_url = settings.base_url(Some("https://acme.example/v1"), "https://acme.example/v1", "/ask")?;
//!     let connection = settings.connect(base_url, KeyHeader::Bearer, Some("ACME_API_KEY"))?;
//!
//!     let mut body = FieldWriter::new(256, &request.options().extra).finish("messages")?;
//!     body.json().extend_from_slice(json!(request.messages()).to_string().as_bytes());
//!     body.json().push(b'}');
//!     let body = body.finish();
//!
//!     let policy = RetryPolicy::default();
//!     let mut retries = policy.start();
//!     loop {
//!         let error = match connection.send(&connection.url("ask"), Some(&body), "application/json").await {
//!             Ok(response) => return response.assemble(assembler()).await,
//!             Err(error) => error,
//!         };
//!         retries.repeat(request, error).await?;
//!     }
//! }
//! ```

mod redact;
pub mod json;
mod connect;
mod body;
mod request_body;
mod error_kind;
mod error_body;
mod retry_headers;
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

pub use self::assembler::{Assembler, EventError, Flow};
pub use self::body::{BodyStart, read_body};
pub use self::calls::{
    find_tool_violation, hash_call_id, is_name_char, is_object, normalize_arguments, normalize_tool_name,
};
pub use self::config::{ConnectionConfig, KeyHeader, read_variable};
pub use self::connect::{TlsError, new_client};
pub use self::connection::{Connection, ResponseHook};
pub use self::deltas::Deltas;
pub use self::encoding_cache::EncodingCache;
pub use self::error::Error;
pub use self::error_body::is_error_body;
pub use self::error_kind::ErrorKind;
pub use self::fields::FieldWriter;
pub use self::redact::{Redactor, redact_url, redact_urls};
pub use self::request_body::{AppendBuffer, BodyWriter, RequestBody};
pub use self::response::ApiResponse;
pub use self::retry::{Retries, Retry, RetryBudget, RetryHook, RetryPolicy, count_attempt};
