//! The configuration of a server and the state that its requests share.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tool_http::server::{Access, Limiter, Limits};

use super::backend::Backend;
use super::error::ApiError;
use super::error_mapping::ErrorMapper;
use super::paused_run::PausedRun;
use super::responses::StoredResponse;
use super::store::{Retention, Store};

/// The configuration of a server.
#[derive(Clone)]
pub(super) struct Config {
    pub(super) access: Access,
    pub(super) allows_remote: bool,
    pub(super) limits: Limits,
    pub(super) retention: Retention,
    pub(super) error_mapper: ErrorMapper,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            access: Access::default(),
            allows_remote: false,
            // Conversations contain images.
            limits: Limits { max_body_bytes: 32 << 20, ..Limits::default() },
            retention: Retention::default(),
            error_mapper: ErrorMapper::default(),
        }
    }
}

/// The state that all requests of a server share.
pub(super) struct ServerState {
    pub(super) config: Config,
    pub(super) responses: Store<StoredResponse>,
    pub(super) paused_runs: Store<PausedRun>,
    pub(super) limiter: Limiter,
    backends: BTreeMap<String, Backend>,
    started_at: u64,
}

impl ServerState {
    pub(super) fn new(config: Config, backends: BTreeMap<String, Backend>) -> Self {
        Self {
            responses: Store::new(config.retention),
            paused_runs: Store::new(config.retention),
            limiter: Limiter::new(config.limits),
            backends,
            started_at: unix_time(),
            config,
        }
    }

    pub(super) fn backend(&self, name: &str) -> Result<&Backend, ApiError> {
        self.backends.get(name).ok_or_else(|| ApiError::unknown_model(name))
    }

    pub(super) fn models_json(&self) -> Value {
        let models = self.backends.keys().map(|name| self.model_entry(name));
        json!({ "object": "list", "data": models.collect::<Vec<_>>() })
    }

    pub(super) fn model_json(&self, name: &str) -> Result<Value, ApiError> {
        self.backend(name).map(|_| self.model_entry(name))
    }

    fn model_entry(&self, name: &str) -> Value {
        json!({ "id": name, "object": "model", "created": self.started_at, "owned_by": "tool-openai" })
    }
}

/// Returns the seconds since the Unix epoch.
pub(super) fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
