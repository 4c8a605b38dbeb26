//! Keeps a server connected: reconnects when a connection is lost, and caches the list of tools.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tool_http::Backoff;

use super::config::ServerConfig;
use super::connection::Connection;
use super::listing::{CachedListing, Listing};
use super::{Fingerprint, McpError};

/// The delays before attempts to reconnect.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));

/// How long a connection has to last before its loss resets the delay.
const STABLE_AFTER: Duration = Duration::from_secs(30);

/// The connections to one server, one after the other. The connection is closed when this is dropped.
pub(super) struct ConnectionManager {
    shared: Arc<Shared>,
    reconnect_task: JoinHandle<()>,
}

/// State that is shared with the task that reconnects.
struct Shared {
    config: ServerConfig,
    current: Mutex<Result<Arc<Connection>, McpError>>,
    connection_changed: Notify,
    /// Locked during a request for the tools, so that concurrent callers share one request.
    cache: tokio::sync::Mutex<Option<CachedListing>>,
}

impl ConnectionManager {
    /// Connects, and reconnects from then on whenever the connection is lost.
    ///
    /// # Errors
    ///
    /// Returns an error if the first connection fails and the server is not optional.
    pub(super) async fn start(config: ServerConfig) -> Result<Self, McpError> {
        let first = Connection::open(&config).await.map(Arc::new);
        if let (Err(error), false) = (&first, config.is_optional) {
            return Err(error.clone());
        }
        let shared = Arc::new(Shared {
            config,
            current: Mutex::new(first),
            connection_changed: Notify::new(),
            cache: tokio::sync::Mutex::new(None),
        });
        let reconnect_task = tokio::spawn(reconnect_forever(Arc::clone(&shared)));
        Ok(Self { shared, reconnect_task })
    }

    pub(super) fn config(&self) -> &ServerConfig {
        &self.shared.config
    }

    /// Returns the current connection.
    ///
    /// # Errors
    ///
    /// Returns the reason why the server is unavailable.
    pub(super) fn connection(&self) -> Result<Arc<Connection>, McpError> {
        match self.shared.current() {
            Ok(connection) if connection.monitor.is_closed() => Err(self.shared.disconnected()),
            current => current,
        }
    }

    /// Waits up to `limit` for a connection other than the numbered one.
    pub(super) async fn next_connection(&self, after: u64, limit: Duration) -> Option<Arc<Connection>> {
        let next = async {
            loop {
                let changed = self.shared.connection_changed.notified();
                if let Ok(connection) = self.shared.current()
                    && connection.number != after
                {
                    return connection;
                }
                changed.await;
            }
        };
        tokio::time::timeout(limit, next).await.ok()
    }

    /// Returns the tools that the server lists. They are requested the first time, after the server reports a change,
    /// and after a reconnection. If they did not change, the same `Arc` is returned.
    ///
    /// # Errors
    ///
    /// Returns an error if the tools differ from the pinned fingerprint, or if they cannot be listed and never were.
    pub(super) async fn listing(&self) -> Result<Arc<Listing>, McpError> {
        let config = &self.shared.config;
        let mut cache = self.shared.cache.lock().await;
        let cached = |cache: &Option<CachedListing>| cache.as_ref().map(|cached| Arc::clone(&cached.listing));
        let connection = match self.connection() {
            Ok(connection) => connection,
            // The known tools are still offered; calls report that the server is unavailable.
            Err(error) => return cached(&cache).ok_or(error),
        };
        let tool_changes = connection.monitor.tool_changes();
        if let Some(cached) = &*cache
            && cached.connection == connection.number
            && cached.tool_changes == tool_changes
        {
            return Ok(Arc::clone(&cached.listing));
        }
        let listing = match Listing::fetch(&connection, config).await {
            Ok(listing) => listing,
            Err(error) => return cached(&cache).ok_or(error),
        };
        if let Some(pinned) = &config.pinned
            && let Some(difference) = pinned.difference(&Fingerprint::from_tools(&listing.tools))
        {
            *cache = None;
            return Err(McpError::fingerprint_mismatch(&config.name, difference));
        }
        let listing =
            cached(&cache).filter(|before| **before == listing).unwrap_or_else(|| Arc::new(listing));
        *cache = Some(CachedListing {
            listing: Arc::clone(&listing),
            connection: connection.number,
            tool_changes,
        });
        Ok(listing)
    }
}

impl Drop for ConnectionManager {
    fn drop(&mut self) {
        self.reconnect_task.abort();
    }
}

impl Shared {
    fn current(&self) -> Result<Arc<Connection>, McpError> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_current(&self, current: Result<Arc<Connection>, McpError>) {
        // Dropping a connection may run foreign code, so it happens after the lock is released.
        let before =
            std::mem::replace(&mut *self.current.lock().unwrap_or_else(PoisonError::into_inner), current);
        drop(before);
        self.connection_changed.notify_waiters();
    }

    fn disconnected(&self) -> McpError {
        McpError::unreachable(&self.config.name, "exited or closed the connection; reconnecting")
    }
}

/// Reconnects with increasing delays whenever the connection is lost.
async fn reconnect_forever(shared: Arc<Shared>) {
    let mut attempts = 0;
    loop {
        let connected_at = Instant::now();
        if let Ok(connection) = shared.current() {
            connection.monitor.closed().await;
            drop(connection);
            shared.set_current(Err(shared.disconnected()));
        }
        if connected_at.elapsed() >= STABLE_AFTER {
            attempts = 0;
        }
        loop {
            tokio::time::sleep(BACKOFF.delay(attempts)).await;
            attempts = attempts.saturating_add(1);
            let opened = Connection::open(&shared.config).await.map(Arc::new);
            let is_connected = opened.is_ok();
            shared.set_current(opened);
            if is_connected {
                break;
            }
        }
    }
}
