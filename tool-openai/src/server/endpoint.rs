//! What the requests of one server share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

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
    /// How long all bodies may be together.
    pub(super) most_of_bodies: usize,
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
            most_of_bodies: 128 << 20,
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
    /// One for each byte of the bodies of all requests under way.
    bodies: Arc<Semaphore>,
    backends: BTreeMap<String, Backend>,
    started: u64,
}

impl Endpoint {
    pub(super) fn new(settings: Settings, backends: BTreeMap<String, Backend>) -> Self {
        let places =
            settings.most_requests.map(|most| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))));
        let bodies = settings.most_of_bodies.max(settings.longest_body).min(Semaphore::MAX_PERMITS);
        let bodies = Arc::new(Semaphore::new(bodies));
        let (responses, runs) = (Kept::new(settings.keeping), Kept::new(settings.keeping));
        Self { settings, responses, runs, places, bodies, backends, started: unix_time() }
    }

    /// Takes room for so many bytes of a body.
    pub(super) fn room(&self, bytes: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        let room = u32::try_from(bytes).ok();
        let room = room.and_then(|bytes| Arc::clone(&self.bodies).try_acquire_many_owned(bytes).ok());
        room.ok_or_else(ApiError::overloaded)
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
