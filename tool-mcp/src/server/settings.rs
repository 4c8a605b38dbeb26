//! What a server was set to.

use std::collections::BTreeMap;
use std::env;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::Implementation;
use secrecy::SecretString;
use tool_core::{Approver, ToolContext};

use super::output::OutputSchema;

pub(super) struct Settings {
    pub(super) about: Implementation,
    pub(super) instructions: Option<String>,
    pub(super) context: ToolContext,
    pub(super) output_schemas: BTreeMap<String, OutputSchema>,
    pub(super) allows_unapproved: bool,
    pub(super) approver: Option<Arc<dyn Approver>>,
    pub(super) page_size: usize,
    pub(super) http: HttpSettings,
}

/// What holds over HTTP only.
#[derive(Clone)]
pub(super) struct HttpSettings {
    pub(super) tokens: Vec<SecretString>,
    pub(super) hosts: Vec<String>,
    pub(super) origins: Vec<String>,
    pub(super) allows_remote: bool,
    pub(super) longest_body: usize,
    pub(super) read_timeout: Duration,
    pub(super) most_sessions: usize,
    pub(super) longest_idle: Duration,
}

impl Settings {
    /// Tools that need approval are served.
    pub(super) fn serves_unapproved(&self) -> bool {
        self.allows_unapproved || self.approver.is_some()
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            about: Implementation::new(name_of_program(), env!("CARGO_PKG_VERSION")),
            instructions: None,
            context: ToolContext::new(),
            output_schemas: BTreeMap::new(),
            allows_unapproved: false,
            approver: None,
            page_size: 100,
            http: HttpSettings::default(),
        }
    }
}

impl Default for HttpSettings {
    fn default() -> Self {
        let loopback = ["localhost", "127.0.0.1", "[::1]"];
        let origins = ["http", "https"].map(|scheme| loopback.map(|host| format!("{scheme}://{host}:*")));
        Self {
            tokens: Vec::new(),
            hosts: loopback.map(str::to_owned).into(),
            origins: origins.concat(),
            allows_remote: false,
            longest_body: 4 << 20,
            read_timeout: Duration::from_secs(30),
            most_sessions: 1000,
            longest_idle: Duration::from_secs(60 * 60),
        }
    }
}

fn name_of_program() -> String {
    let program = env::args_os().next().unwrap_or_default();
    let name = Path::new(&program).file_stem().and_then(|name| name.to_str());
    name.filter(|name| !name.is_empty()).unwrap_or("tools").to_owned()
}
