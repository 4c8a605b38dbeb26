//! A server through its connections: one after the other, as each may be lost.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::connection::Connection;
use super::listing::{Kept, Listing};
use super::settings::Settings;
use super::{Fingerprint, McpError};

/// How long is waited before a server is connected to again, at first; it is doubled each time.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How long a connection has to last so that its end counts as the first.
const LASTING: Duration = Duration::from_secs(30);

/// A server that is in use. The connection ends when the last of its users is dropped.
pub(super) struct Live {
    server: Arc<Server>,
    keeper: JoinHandle<()>,
}

/// What the task that keeps up the connection shares with the users.
struct Server {
    settings: Settings,
    link: Mutex<Result<Arc<Connection>, McpError>>,
    changed: Notify,
    /// Locked while the server is asked, so that it is asked once.
    kept: tokio::sync::Mutex<Option<Kept>>,
}

impl Live {
    /// Connects, and from then on connects again whenever the connection is lost.
    ///
    /// # Errors
    ///
    /// The first connection fails, and the server is not optional.
    pub(super) async fn start(settings: Settings) -> Result<Self, McpError> {
        let first = Connection::open(&settings).await.map(Arc::new);
        if let (Err(error), false) = (&first, settings.is_optional) {
            return Err(error.clone());
        }
        let server = Arc::new(Server {
            settings,
            link: Mutex::new(first),
            changed: Notify::new(),
            kept: tokio::sync::Mutex::new(None),
        });
        let keeper = tokio::spawn(keep_up(Arc::clone(&server)));
        Ok(Self { server, keeper })
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.server.settings
    }

    /// The connection, if there is one.
    ///
    /// # Errors
    ///
    /// The server is down: why, and that it is tried again.
    pub(super) fn connection(&self) -> Result<Arc<Connection>, McpError> {
        let link = self.server.link();
        match link {
            Ok(connection) if connection.inbox.is_closed() => Err(self.server.went_away()),
            link => link,
        }
    }

    /// The connection after the one of this number, within so much time.
    pub(super) async fn next_connection(&self, after: u64, limit: Duration) -> Option<Arc<Connection>> {
        let next = async {
            loop {
                let changed = self.server.changed.notified();
                if let Ok(connection) = self.server.link()
                    && connection.number != after
                {
                    return connection;
                }
                changed.await;
            }
        };
        tokio::time::timeout(limit, next).await.ok()
    }

    /// What the server lists. It is asked when it was never asked, when it says that something changed, and when it
    /// was connected to again. The same `Arc` means that nothing changed.
    ///
    /// # Errors
    ///
    /// The tools are not the pinned ones, or the server cannot tell and has never told.
    pub(super) async fn listing(&self) -> Result<Arc<Listing>, McpError> {
        let settings = &self.server.settings;
        let mut kept = self.server.kept.lock().await;
        let told = |kept: &Option<Kept>| kept.as_ref().map(|kept| Arc::clone(&kept.listing));
        let connection = match self.connection() {
            Ok(connection) => connection,
            // What it said is offered further: its calls tell that it is down.
            Err(error) => return told(&kept).ok_or(error),
        };
        let changes = connection.inbox.changes();
        if let Some(kept) = &*kept
            && kept.connection == connection.number
            && kept.changes == changes
        {
            return Ok(Arc::clone(&kept.listing));
        }
        let listing = match Listing::ask(&connection, settings).await {
            Ok(listing) => listing,
            Err(error) => return told(&kept).ok_or(error),
        };
        if let Some(pinned) = &settings.pinned
            && let Some(difference) = pinned.difference(&Fingerprint::of(&listing.tools))
        {
            *kept = None;
            return Err(McpError::changed(&settings.name, difference));
        }
        let listing = told(&kept).filter(|before| **before == listing).unwrap_or_else(|| Arc::new(listing));
        *kept = Some(Kept { listing: Arc::clone(&listing), connection: connection.number, changes });
        Ok(listing)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Server {
    fn link(&self) -> Result<Arc<Connection>, McpError> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_link(&self, link: Result<Arc<Connection>, McpError>) {
        // What is dropped here may run code of its own.
        let before = std::mem::replace(&mut *self.link.lock().unwrap_or_else(PoisonError::into_inner), link);
        drop(before);
        self.changed.notify_waiters();
    }

    fn went_away(&self) -> McpError {
        McpError::unreachable(
            &self.settings.name,
            "has ended or closed the connection; it is connected to again",
        )
    }
}

/// Connects again, later and later, whenever the connection is lost.
async fn keep_up(server: Arc<Server>) {
    let mut wait = FIRST_WAIT;
    loop {
        let up_since = Instant::now();
        if let Ok(connection) = server.link() {
            connection.inbox.closed().await;
            drop(connection);
            server.set_link(Err(server.went_away()));
        }
        if up_since.elapsed() >= LASTING {
            wait = FIRST_WAIT;
        }
        loop {
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
            let opened = Connection::open(&server.settings).await.map(Arc::new);
            let is_up = opened.is_ok();
            server.set_link(opened);
            if is_up {
                break;
            }
        }
    }
}
