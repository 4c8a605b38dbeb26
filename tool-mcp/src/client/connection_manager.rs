//! Keeps a server connected: reconnects when a connection is lost, and lists and verifies its tools.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::config::ServerConfig;
use super::connection::{BACKOFF, Connection, STABLE_AFTER, VerifiedConnection, VerifiedListing};
use super::fetch_listing::fetch_listing;
use super::listing::Listing;
use super::open_call::HeldCalls;
use super::{Fingerprint, McpError, McpErrorKind};

/// The longest wait for a new connection before a call that can be repeated fails.
const MAX_RECONNECT_WAIT: Duration = Duration::from_secs(10);

/// The number of times that the tools are listed for one call if they change each time.
const MAX_VERIFICATIONS: usize = 3;

/// The connections to one server, one after the other. The connection is closed when this is dropped.
pub(super) struct ConnectionManager {
    shared: Arc<Shared>,
    held: Arc<HeldCalls>,
    reconnect_task: JoinHandle<()>,
}

/// State that is shared with the task that reconnects.
struct Shared {
    config: ServerConfig,
    current: watch::Sender<Current>,
    /// Ends the delay before the next attempt to connect.
    retry: Notify,
    /// The number of attempts to reconnect that have begun.
    begun: AtomicU64,
    /// The last listing of any connection that was verified. Locked during a request for the tools, so that concurrent
    /// callers share one request.
    last_listing: tokio::sync::Mutex<Option<Arc<Listing>>>,
}

/// The connection, or the reason why there is none.
struct Current {
    connection: Result<Arc<Connection>, McpError>,
    /// The number of attempts to reconnect that have ended.
    attempts: u64,
}

impl ConnectionManager {
    /// Connects, and reconnects from then on whenever the connection is lost.
    ///
    /// # Errors
    ///
    /// Returns an error if the first connection fails and the server is not optional.
    pub(super) async fn start(config: ServerConfig) -> Result<Self, McpError> {
        let first = Connection::open(&config, false).await.map(Arc::new);
        if let (Err(error), false) = (&first, config.is_optional) {
            return Err(error.clone());
        }
        let shared = Arc::new(Shared {
            config,
            current: watch::Sender::new(Current { connection: first, attempts: 0 }),
            retry: Notify::new(),
            begun: AtomicU64::new(0),
            last_listing: tokio::sync::Mutex::new(None),
        });
        let reconnect_task = tokio::spawn(reconnect_forever(Arc::clone(&shared)));
        Ok(Self { shared, held: Arc::default(), reconnect_task })
    }

    pub(super) fn config(&self) -> &ServerConfig {
        &self.shared.config
    }

    pub(super) fn held(&self) -> &Arc<HeldCalls> {
        &self.held
    }

    fn pinned(&self) -> Option<&Fingerprint> {
        self.shared.config.pinned.as_deref()
    }

    /// Returns the current connection.
    ///
    /// # Errors
    ///
    /// Returns the reason why the server is unavailable.
    fn connection(&self) -> Result<Arc<Connection>, McpError> {
        self.shared.usable(&self.shared.current.borrow())
    }

    /// Returns the current connection like [`connection`](Self::connection). If the user had to log in for it, it is tried again at once,
    /// because that may have happened.
    async fn connection_after_login(&self) -> Result<Arc<Connection>, McpError> {
        let needs_login = |error: &McpError| error.kind() == McpErrorKind::LoginRequired;
        let shared = &self.shared;
        // An attempt that has begun before may not know of the login.
        let before = shared.begun.load(Ordering::SeqCst);
        if self.connection().as_ref().is_err_and(needs_login) {
            shared.retry.notify_one();
            let mut current = shared.current.subscribe();
            let is_over = |current: &Current| current.attempts > before || shared.usable(current).is_ok();
            let retried = tokio::time::timeout(shared.config.connect_timeout, current.wait_for(is_over));
            drop(retried.await);
        }
        self.connection()
    }

    /// Returns the reason why the server is unavailable.
    pub(super) fn last_error(&self) -> Option<McpError> {
        self.connection().err()
    }

    /// Returns the current connection if it can be used without a request for the tools.
    pub(super) fn verified_now(&self) -> Option<VerifiedConnection> {
        VerifiedConnection::new(self.connection().ok()?, self.pinned())
    }

    /// Returns the current connection. If there is a pinned fingerprint, the tools are listed and compared if necessary.
    ///
    /// # Errors
    ///
    /// Returns the reason why the server is unavailable, or why its tools cannot be verified.
    pub(super) async fn verified(&self) -> Result<VerifiedConnection, McpError> {
        for _ in 0..MAX_VERIFICATIONS {
            let connection = self.connection_after_login().await?;
            if let Some(verified) = VerifiedConnection::new(Arc::clone(&connection), self.pinned()) {
                return Ok(verified);
            }
            self.list(&connection).await?;
        }
        let problem =
            "is refused because its tools change before they can be compared with the pinned fingerprint";
        self.verified_now().ok_or_else(|| McpError::unreachable(&self.shared.config.name, problem))
    }

    /// Waits some time until there is a connection other than the numbered one; the numbers start at 1. Returns `false` if there is none.
    pub(super) async fn is_reconnected(&self, after: u64) -> bool {
        let limit = self.shared.config.timeout.min(MAX_RECONNECT_WAIT);
        let mut current = self.shared.current.subscribe();
        let is_next = |current: &Current| self.shared.usable(current).is_ok_and(|next| next.number != after);
        matches!(tokio::time::timeout(limit, current.wait_for(is_next)).await, Ok(Ok(_)))
    }

    /// Returns the tools that the server lists. They are requested the first time, after the server reports a change or the time for which it
    /// allows to use the list, and after a reconnection. If they did not change, the same `Arc` is returned.
    ///
    /// # Errors
    ///
    /// Returns an error if the tools differ from the pinned fingerprint, or if they cannot be listed and never were. With a
    /// pinned fingerprint, it is also an error if a connected server does not list them.
    pub(super) async fn listing(&self) -> Result<Arc<Listing>, McpError> {
        let error = match self.connection_after_login().await {
            Ok(connection) => match self.list(&connection).await {
                Err(error) if self.pinned().is_none() => error,
                listed => return listed,
            },
            Err(error) => error,
        };
        // The known tools are still offered; calls report that the server is unavailable.
        self.shared.last_listing.lock().await.clone().ok_or(error)
    }

    /// Returns the verified listing of the connection, and requests it if necessary.
    async fn list(&self, connection: &Connection) -> Result<Arc<Listing>, McpError> {
        let (config, needed_after) = (&self.shared.config, connection.listings());
        let mut last_listing = self.shared.last_listing.lock().await;
        if let Some(listing) = connection.current_listing(needed_after) {
            return Ok(listing);
        }
        let (tool_changes, requested) = (connection.monitor.tool_changes(), Instant::now());
        let number = connection.begin_listing();
        let (listing, ttl) = fetch_listing(connection, config).await?;
        let expires = ttl.and_then(|ttl| requested.checked_add(ttl));
        let listing = match &*last_listing {
            Some(last) if **last == listing => Arc::clone(last),
            _ => Arc::new(listing),
        };
        match VerifiedListing::new(Arc::clone(&listing), tool_changes, number, expires, self.pinned()) {
            Ok(verified) => {
                connection.set_listing(Some(verified));
                *last_listing = Some(Arc::clone(&listing));
                Ok(listing)
            }
            Err(difference) => {
                connection.set_listing(None);
                *last_listing = None;
                Err(McpError::fingerprint_mismatch(&config.name, difference))
            }
        }
    }
}

impl Drop for ConnectionManager {
    fn drop(&mut self) {
        self.reconnect_task.abort();
    }
}

impl Shared {
    /// Returns the connection, unless it has ended.
    fn usable(&self, current: &Current) -> Result<Arc<Connection>, McpError> {
        match &current.connection {
            Ok(connection) if !connection.monitor.is_open() => Err(self.disconnected()),
            connection => connection.clone(),
        }
    }

    fn disconnected(&self) -> McpError {
        McpError::unreachable(&self.config.name, "exited or closed the connection; reconnecting")
    }
}

/// Reconnects with increasing delays whenever the connection is lost.
async fn reconnect_forever(shared: Arc<Shared>) {
    let (mut attempts, mut is_legacy) = (0, false);
    loop {
        let connected_at = Instant::now();
        let connection = shared.current.borrow().connection.clone();
        if let Ok(connection) = connection {
            is_legacy = connection.is_legacy();
            connection.monitor.retired().await;
            drop(connection);
            let attempts = shared.begun.load(Ordering::SeqCst);
            shared.current.send_replace(Current { connection: Err(shared.disconnected()), attempts });
        }
        if connected_at.elapsed() >= STABLE_AFTER {
            attempts = 0;
        }
        loop {
            let _ = tokio::time::timeout(BACKOFF.delay(attempts), shared.retry.notified()).await;
            attempts = attempts.saturating_add(1);
            let attempts = shared.begun.fetch_add(1, Ordering::SeqCst) + 1;
            let connection = Connection::open(&shared.config, is_legacy).await.map(Arc::new);
            let is_connected = connection.is_ok();
            // The connection before is dropped here, because that may run foreign code.
            shared.current.send_replace(Current { connection, attempts });
            if is_connected {
                break;
            }
        }
    }
}
