//! The parts that clients share: TLS, bounded bodies, server-sent events and redaction.

mod body;
mod connect;
mod redact;
pub mod sse;

pub use self::body::{BodyStart, read_body};
pub use self::connect::{TlsError, is_loopback, new_client};
pub use self::redact::{Redactor, redact_url, redact_urls};
