//! What the requests of one server share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::agent::PausedRun;
use super::backend::Backend;
use super::error::ApiError;
use super::failure::Telling;
use super::kept::{Keeping, Kept};
use super::responses::StoredResponse;

/// What a server was set to.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) keys: Vec<SecretString>,
    pub(super) longest_body: usize,
    pub(super) read_timeout: Duration,
    pub(super) most_requests: Option<usize>,
    pub(super) keeping: Keeping,
    pub(super) telling: Telling,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            longest_body: 32 << 20,
            read_timeout: Duration::from_secs(30),
            most_requests: None,
            keeping: Keeping::default(),
            telling: Telling::default(),
        }
    }
}

/// What the requests of one server share.
pub(super) struct Endpoint {
    pub(super) settings: Settings,
    pub(super) responses: Kept<StoredResponse>,
    pub(super) runs: Kept<PausedRun>,
    /// One for each request that may be under way.
    pub(super) places: Option<Arc<Semaphore>>,
    backends: BTreeMap<String, Backend>,
    started: u64,
}

impl Endpoint {
    pub(super) fn new(settings: Settings, backends: BTreeMap<String, Backend>) -> Self {
        let places =
            settings.most_requests.map(|most| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))));
        let (responses, runs) = (Kept::new(settings.keeping), Kept::new(settings.keeping));
        Self { settings, responses, runs, places, backends, started: unix_time() }
    }

    pub(super) fn backend(&self, name: &str) -> Result<&Backend, ApiError> {
        self.backends.get(name).ok_or_else(|| ApiError::unknown_model(name))
    }

    pub(super) fn models(&self) -> Value {
        let models = self.backends.keys().map(|name| self.model_json(name));
        json!({ "object": "list", "data": models.collect::<Vec<_>>() })
    }

    pub(super) fn model(&self, name: &str) -> Result<Value, ApiError> {
        self.backend(name).map(|_| self.model_json(name))
    }

    fn model_json(&self, name: &str) -> Value {
        json!({ "id": name, "object": "model", "created": self.started, "owned_by": "tool-openai" })
    }
}

pub(super) fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
