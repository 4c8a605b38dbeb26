//! The shutdown of a server over HTTP.

use std::sync::Arc;

use tokio::sync::watch;

/// The phase of the shutdown and the number of requests in flight. Clones share both.
#[derive(Clone, Debug)]
pub(super) struct Shutdown(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    phase: watch::Sender<ShutdownPhase>,
    requests: watch::Sender<usize>,
}

/// The phases of a shutdown, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ShutdownPhase {
    NotRequested,
    /// Refuses new requests and answers those in flight.
    Draining,
    /// Ends endless streams as well, such as the stream of a session.
    ClosingStreams,
    /// Aborts everything.
    Aborting,
}

impl Shutdown {
    pub(super) fn new() -> Self {
        let phase = watch::Sender::new(ShutdownPhase::NotRequested);
        Self(Arc::new(Inner { phase, requests: watch::Sender::new(0) }))
    }

    /// Advances to a phase. Never returns to an earlier one.
    pub(super) fn advance_to(&self, phase: ShutdownPhase) {
        self.0.phase.send_if_modified(|current| std::mem::replace(current, phase.max(*current)) < phase);
    }

    /// Returns `true` if this phase or a later one is reached.
    pub(super) fn has_reached(&self, phase: ShutdownPhase) -> bool {
        *self.0.phase.borrow() >= phase
    }

    /// Waits until this phase or a later one is reached.
    pub(super) async fn reached(&self, phase: ShutdownPhase) {
        // Cannot fail: `self` holds the sender.
        let _ = self.0.phase.subscribe().wait_for(|current| *current >= phase).await;
    }

    /// Waits like [`reached`](Self::reached) without keeping the server's state alive. Resolves to `false` if the server was
    /// dropped before.
    pub(super) fn reached_weak(&self, phase: ShutdownPhase) -> impl Future<Output = bool> + Send + use<> {
        let mut phases = self.0.phase.subscribe();
        async move { phases.wait_for(|current| *current >= phase).await.is_ok() }
    }

    /// Waits until the shutdown is requested.
    pub(super) async fn requested(&self) {
        self.reached(ShutdownPhase::Draining).await;
    }

    /// Counts a request as in flight until the returned guard is dropped.
    pub(super) fn track_request(&self) -> RequestGuard {
        self.0.requests.send_modify(|requests| *requests += 1);
        RequestGuard(self.clone())
    }

    /// Waits until no request is in flight.
    pub(super) async fn drained(&self) {
        let _ = self.0.requests.subscribe().wait_for(|requests| *requests == 0).await;
    }
}

pub(super) struct RequestGuard(Shutdown);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.0.requests.send_modify(|requests| *requests -= 1);
    }
}
