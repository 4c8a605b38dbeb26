//! The parts that clients share: TLS, bounded bodies, server-sent events, redaction and printable text.

mod body;
mod connect;
mod printable;
mod redact;
pub mod sse;

pub use self::body::{BodyStart, read_body};
pub use self::connect::{TlsError, is_loopback, new_client};
pub use self::printable::printable;
pub use self::redact::{Redactor, redact_url, redact_urls};
