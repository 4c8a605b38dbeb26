//! Stopping a server over HTTP.

use std::sync::Arc;

use tokio::sync::watch;

/// How far a server is to stop, and what is under way. Cloning shares it.
#[derive(Clone, Debug)]
pub(super) struct Stopping(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    stop: watch::Sender<Stop>,
    requests: watch::Sender<usize>,
}

/// How far the server is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stop {
    NotYet,
    /// No more requests are taken; those under way are answered.
    Requests,
    /// What goes on without end, such as the stream of a session, ends, too.
    Streams,
    /// All is cut.
    AtOnce,
}

impl Stopping {
    pub(super) fn new() -> Self {
        Self(Arc::new(Inner { stop: watch::Sender::new(Stop::NotYet), requests: watch::Sender::new(0) }))
    }

    /// For who stops in other ways.
    pub(super) fn never() -> Self {
        Self::new()
    }

    pub(super) fn stop(&self, stop: Stop) {
        self.0.stop.send_if_modified(|current| std::mem::replace(current, stop.max(*current)) < stop);
    }

    /// It is stopped so far.
    pub(super) fn is(&self, stop: Stop) -> bool {
        *self.0.stop.borrow() >= stop
    }

    /// Waits until it is stopped so far.
    pub(super) async fn reached(&self, stop: Stop) {
        // The sender is held here.
        let _ = self.0.stop.subscribe().wait_for(|current| *current >= stop).await;
    }

    /// Waits until it begins to stop.
    pub(super) async fn begun(&self) {
        self.reached(Stop::Requests).await;
    }

    /// A request is under way, until what is returned is dropped.
    pub(super) fn request(&self) -> RequestUnderWay {
        self.0.requests.send_modify(|requests| *requests += 1);
        RequestUnderWay(self.clone())
    }

    /// Waits until no request is under way.
    pub(super) async fn answered(&self) {
        let _ = self.0.requests.subscribe().wait_for(|requests| *requests == 0).await;
    }
}

pub(super) struct RequestUnderWay(Stopping);

impl Drop for RequestUnderWay {
    fn drop(&mut self) {
        self.0.0.requests.send_modify(|requests| *requests -= 1);
    }
}
