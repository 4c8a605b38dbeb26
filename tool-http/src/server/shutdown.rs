//! The shutdown of a server over HTTP.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// The longest time in which requests that were stopped put things in order.
const MAX_SETTLING: Duration = Duration::from_secs(1);

/// The phase of the shutdown and the number of requests in flight. Clones share both.
#[derive(Clone, Debug)]
pub struct Shutdown(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    phase: watch::Sender<ShutdownPhase>,
    requests: watch::Sender<usize>,
}

/// The phases of a shutdown, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShutdownPhase {
    /// The server runs.
    NotRequested,
    /// Refuses new requests and answers those in flight.
    Draining,
    /// Ends endless streams as well, such as the stream of a session.
    ClosingStreams,
    /// Aborts everything.
    Aborting,
}

impl Shutdown {
    /// Creates the shutdown of a server that runs.
    #[must_use]
    pub fn new() -> Self {
        let phase = watch::Sender::new(ShutdownPhase::NotRequested);
        Self(Arc::new(Inner { phase, requests: watch::Sender::new(0) }))
    }

    /// Advances to a phase. Never returns to an earlier one.
    pub fn advance_to(&self, phase: ShutdownPhase) {
        self.0.phase.send_if_modified(|current| std::mem::replace(current, phase.max(*current)) < phase);
    }

    /// Returns `true` if this phase or a later one is reached.
    #[must_use]
    pub fn has_reached(&self, phase: ShutdownPhase) -> bool {
        *self.0.phase.borrow() >= phase
    }

    /// Waits until this phase or a later one is reached.
    pub async fn reached(&self, phase: ShutdownPhase) {
        // Cannot fail: `self` holds the sender.
        let _ = self.0.phase.subscribe().wait_for(|current| *current >= phase).await;
    }

    /// Waits like [`reached`](Self::reached) without keeping the server's state alive. Resolves to `false` if the server was
    /// dropped before.
    pub fn reached_weak(&self, phase: ShutdownPhase) -> impl Future<Output = bool> + Send + use<> {
        let mut phases = self.0.phase.subscribe();
        async move { phases.wait_for(|current| *current >= phase).await.is_ok() }
    }

    /// Waits until the shutdown is requested.
    pub async fn requested(&self) {
        self.reached(ShutdownPhase::Draining).await;
    }

    /// Counts a request as in flight until the returned guard is dropped.
    #[must_use]
    pub fn track_request(&self) -> RequestGuard {
        self.0.requests.send_modify(|requests| *requests += 1);
        RequestGuard(self.clone())
    }

    /// Waits until no request is in flight.
    pub async fn drained(&self) {
        let _ = self.0.requests.subscribe().wait_for(|requests| *requests == 0).await;
    }

    /// Waits, for at most a second, until no request is in flight, once those that are were stopped.
    pub async fn settled(&self) {
        let _ = tokio::time::timeout(MAX_SETTLING, self.drained()).await;
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

/// Counts a request as in flight until it is dropped.
#[derive(Debug)]
pub struct RequestGuard(Shutdown);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.0.requests.send_modify(|requests| *requests -= 1);
    }
}
