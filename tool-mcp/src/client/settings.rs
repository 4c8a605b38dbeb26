//! What is known of a server before it is connected to.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::child::{Pipes, Process};
use super::http::Http;
use super::inbox::LogHook;
use super::secrets::Secrets;
use super::{Fingerprint, McpTool};

pub(super) type Connector =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = io::Result<Pipes>> + Send>> + Send + Sync>;

/// Where a server is.
#[derive(Clone)]
pub(super) enum Place {
    Process(Process),
    Http(Http),
    Connector(Connector),
}

/// Says whether a person has to approve the calls of a tool.
pub(super) type Approval = Arc<dyn Fn(&McpTool) -> bool + Send + Sync>;

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) max_message: usize,
    pub(super) max_tools: usize,
    pub(super) max_output_chars: usize,
    pub(super) is_optional: bool,
    pub(super) needs_approval: Approval,
    pub(super) pinned: Option<Arc<Fingerprint>>,
    pub(super) on_log: Option<LogHook>,
    pub(super) secrets: Secrets,
}

impl Settings {
    pub(super) fn new(name: String, place: Place) -> Self {
        Self {
            name,
            place,
            timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(60),
            max_message: 16 << 20,
            max_tools: 2000,
            max_output_chars: 100_000,
            is_optional: false,
            needs_approval: Arc::new(McpTool::is_destructive),
            pinned: None,
            on_log: None,
            secrets: Secrets::default(),
        }
    }
}
