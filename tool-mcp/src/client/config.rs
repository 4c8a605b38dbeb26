//! Configuration of a server before a connection is opened.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tool_http::client::Redactor;

use super::fingerprint::Fingerprint;
use super::http::HttpConfig;
use super::monitor::LogHook;
use super::process::{Pipes, ProcessConfig};
use super::trust::Trust;

pub(super) type Connector =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = io::Result<Pipes>> + Send>> + Send + Sync>;

/// The shortest secret that is redacted, in bytes. Shorter ones also occur as parts of ordinary words.
const MIN_SECRET_BYTES: usize = 6;

/// The transport of a server.
#[derive(Clone)]
pub(super) enum Endpoint {
    Process(ProcessConfig),
    Http(HttpConfig),
    Connector(Connector),
}

#[derive(Clone)]
pub(super) struct ServerConfig {
    pub(super) name: String,
    pub(super) endpoint: Endpoint,
    pub(super) timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) max_message_bytes: usize,
    pub(super) max_tools: usize,
    pub(super) max_output_chars: usize,
    pub(super) is_optional: bool,
    pub(super) trust: Trust,
    pub(super) pinned: Option<Arc<Fingerprint>>,
    pub(super) on_log: Option<LogHook>,
    pub(super) records_messages: bool,
    pub(super) redactor: Redactor,
}

impl ServerConfig {
    pub(super) fn new(name: String, endpoint: Endpoint) -> Self {
        Self {
            name,
            endpoint,
            timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(60),
            max_message_bytes: 16 << 20,
            max_tools: 2000,
            max_output_chars: 100_000,
            is_optional: false,
            trust: Trust::default(),
            pinned: None,
            on_log: None,
            records_messages: false,
            redactor: Redactor::new("[…]", MIN_SECRET_BYTES),
        }
    }
}
