//! The parts that clients share: connections, TLS, bodies, server-sent events, retries and redaction.

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
pub use self::error_body::ErrorBody;
pub use self::error_kind::ErrorKind;
pub use self::fields::{FieldError, FieldWriter};
pub use self::redact::{Redactor, redact_url, redact_urls};
pub use self::request_body::{AppendBuffer, BodyWriter, RequestBody};
pub use self::retry::{Retries, Retry, RetryBudget, RetryHeaders, RetryHook, RetryPolicy, Retryable};
