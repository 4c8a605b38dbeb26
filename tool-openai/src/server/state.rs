//! The configuration of a server and the state that its requests share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::agent::PausedRun;
use super::backend::Backend;
use super::error::ApiError;
use super::error_mapping::ErrorMapper;
use super::responses::StoredResponse;
use super::store::{Retention, Store};

/// The configuration of a server.
#[derive(Clone)]
pub(super) struct Config {
    pub(super) api_keys: Vec<SecretString>,
    pub(super) max_body_bytes: usize,
    pub(super) max_total_body_bytes: usize,
    pub(super) read_timeout: Duration,
    pub(super) max_concurrent_requests: Option<usize>,
    pub(super) retention: Retention,
    pub(super) error_mapper: ErrorMapper,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            api_keys: Vec::new(),
            max_body_bytes: 32 << 20,
            max_total_body_bytes: 128 << 20,
            read_timeout: Duration::from_secs(30),
            max_concurrent_requests: None,
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
    /// One permit for each request that may be in flight.
    pub(super) request_permits: Option<Arc<Semaphore>>,
    /// One permit for each byte of the bodies of all requests in flight.
    body_permits: Arc<Semaphore>,
    backends: BTreeMap<String, Backend>,
    started_at: u64,
}

impl ServerState {
    pub(super) fn new(config: Config, backends: BTreeMap<String, Backend>) -> Self {
        let requests = config.max_concurrent_requests;
        let requests = requests.map(|max| Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS))));
        let body_bytes = config.max_total_body_bytes.max(config.max_body_bytes).min(Semaphore::MAX_PERMITS);
        Self {
            responses: Store::new(config.retention),
            paused_runs: Store::new(config.retention),
            request_permits: requests,
            body_permits: Arc::new(Semaphore::new(body_bytes)),
            backends,
            started_at: unix_time(),
            config,
        }
    }

    /// Reserves this many bytes of the total that request bodies may take.
    pub(super) fn reserve_body_bytes(&self, bytes: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        let permits = u32::try_from(bytes).ok();
        let permit =
            permits.and_then(|bytes| Arc::clone(&self.body_permits).try_acquire_many_owned(bytes).ok());
        permit.ok_or_else(ApiError::overloaded)
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
