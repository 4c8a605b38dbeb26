//! The configuration of a server and the state that its requests share.

use axum::http::HeaderMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tool_core::engine::AgentExt;
use tool_core::model::RunUser;

use serde_json::{Value, json};
use tool_core::ModelOptions;
use tool_core::memory::InMemoryStore;
use tool_http::server::{Access, Limiter, Limits, SenderPermits};

use super::answers::Answers;
use super::backend::{Backend, FieldNames};
use super::error::ApiError;
use super::error_mapping::ErrorMapper;
use super::options::{ChooseOptions, ChooseUser, choose_options};
use super::store::{MAX_BYTES, Retention, Store};
use super::stored_response::StoredResponse;

/// The configuration of a server.
#[derive(Clone)]
pub(super) struct Config {
    pub(super) access: Access,
    pub(super) allows_remote: bool,
    pub(super) limits: Limits,
    pub(super) max_concurrent_requests_per_key: usize,
    pub(super) retention: Retention,
    pub(super) error_mapper: ErrorMapper,
    pub(super) choose_options: Option<Arc<ChooseOptions>>,
    pub(super) choose_user: Option<Arc<ChooseUser>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            access: Access::default(),
            allows_remote: false,
            // Conversations contain images.
            limits: Limits {
                max_body_bytes: 32 << 20,
                max_concurrent_requests: Some(1024),
                ..Limits::default()
            },
            max_concurrent_requests_per_key: 256,
            retention: Retention::default(),
            error_mapper: ErrorMapper::default(),
            choose_options: None,
            choose_user: None,
        }
    }
}

/// The state that all requests of a server share.
pub(super) struct ServerState {
    pub(super) config: Config,
    pub(super) responses: Store<Arc<StoredResponse>>,
    pub(super) answers: Arc<Answers>,
    /// The runs of agents without a store of their own.
    pub(super) runs: InMemoryStore,
    pub(super) limiter: Limiter,
    /// The requests in flight of each key. Their total is limited by the `limiter`.
    pub(super) of_keys: SenderPermits,
    backends: BTreeMap<String, Backend>,
    started_at: u64,
}

impl ServerState {
    pub(super) fn user_of(&self, headers: &HeaderMap) -> Option<RunUser> {
        self.config.choose_user.as_ref()?(headers)
    }

    pub(super) fn new(config: Config, backends: BTreeMap<String, Backend>) -> Self {
        let Retention { max_entries, max_age } = config.retention;
        let runs = InMemoryStore::new().max_runs(max_entries).max_run_age(max_age).max_run_bytes(MAX_BYTES);
        for backend in backends.values() {
            if let Backend::Agent(agent) = backend {
                agent.run_store_or(runs.clone());
            }
        }
        Self {
            responses: Store::new(config.retention),
            answers: Answers::new(config.retention),
            runs,
            limiter: Limiter::new(config.limits),
            of_keys: SenderPermits::new(usize::MAX, config.max_concurrent_requests_per_key),
            backends,
            started_at: unix_time(),
            config,
        }
    }

    pub(super) fn backend(&self, name: &str) -> Result<&Backend, ApiError> {
        self.backends.get(name).ok_or_else(|| ApiError::unknown_model(name))
    }

    /// Returns the model options that a request to this model or agent sets.
    pub(super) fn model_options(
        &self,
        model: &str,
        sent: ModelOptions,
        names: &FieldNames,
    ) -> Result<ModelOptions, ApiError> {
        choose_options(self.backend(model)?, self.config.choose_options.as_deref(), sent, names)
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
