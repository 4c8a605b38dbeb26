//! Telling what is under way that nobody waits for it any more.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{self, Shared};

/// Tells what is under way that nobody waits for it any more. Cloning shares it.
///
/// A tool has it injected, as `#[inject] cancellation: &CancellationToken`: it is cancelled when the run ends or is dropped
/// while the call is under way, and when the call takes longer than it may. The future of the call is dropped then by itself; what the tool has given to other
/// threads or tasks has to look.
///
/// An application makes one to cancel runs from elsewhere, with
/// [`Ask::cancelled_by`](crate::Ask::cancelled_by).
///
/// ```
/// use tool_core::{CancellationToken, tool};
///
/// #[tool("Counts to a number, slowly", blocking)]
/// fn count(to: u32, #[inject] cancellation: &CancellationToken) -> u32 {
///     (0..to).take_while(|_| !cancellation.is_cancelled()).count() as u32
/// }
///
/// let cancellation = CancellationToken::new();
/// cancellation.cancel();
/// assert_eq!(count(1000, &cancellation), 0);
/// ```
#[derive(Clone)]
pub struct CancellationToken(Arc<Inner>);

struct Inner {
    is_cancelled: AtomicBool,
    /// Dropped when it is cancelled, which wakes whoever waits.
    sender: Mutex<Option<oneshot::Sender<()>>>,
    cancelled: Shared<oneshot::Receiver<()>>,
    parent: Option<CancellationToken>,
}

impl CancellationToken {
    /// Nothing is cancelled yet.
    #[must_use]
    pub fn new() -> Self {
        Self::under(None)
    }

    /// One that is cancelled with this one, and can be so alone.
    #[must_use]
    pub fn child(&self) -> Self {
        Self::under(Some(self.clone()))
    }

    fn under(parent: Option<Self>) -> Self {
        let (sender, receiver) = oneshot::channel();
        Self(Arc::new(Inner {
            is_cancelled: AtomicBool::new(false),
            sender: Mutex::new(Some(sender)),
            cancelled: receiver.shared(),
            parent,
        }))
    }

    /// Cancels, for good.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::Release);
        drop(self.0.sender.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// It was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Acquire) || self.0.parent.as_ref().is_some_and(Self::is_cancelled)
    }

    /// Waits until it is cancelled.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + Unpin + 'static {
        let mut all = vec![self.0.cancelled.clone()];
        let mut parent = self.0.parent.as_ref();
        while let Some(above) = parent {
            all.push(above.0.cancelled.clone());
            parent = above.0.parent.as_ref();
        }
        // The senders are kept by the parents, which a child holds.
        let held = self.clone();
        future::select_all(all).map(move |_| drop(held))
    }
}

impl Default for CancellationToken {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for CancellationToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CancellationToken({})", if self.is_cancelled() { "cancelled" } else { "not cancelled" })
    }
}

/// The cancellation of one call, made when its tool first asks for it: most never do.
#[derive(Clone)]
pub(crate) struct OfCall(Arc<(CancellationToken, OnceLock<CancellationToken>)>);

impl OfCall {
    pub(crate) fn of(run: &CancellationToken) -> Self {
        Self(Arc::new((run.clone(), OnceLock::new())))
    }

    pub(crate) fn get(&self) -> &CancellationToken {
        let (run, of_call) = &*self.0;
        of_call.get_or_init(|| run.child())
    }

    /// Nobody waits for the call any more. What it has started may ask only now.
    pub(crate) fn cancel_on_drop(&self) -> CancelCallOnDrop {
        CancelCallOnDrop(Some(self.clone()))
    }
}

/// Cancels a call when it is dropped.
pub(crate) struct CancelCallOnDrop(Option<OfCall>);

impl CancelCallOnDrop {
    /// The call is over: there is nothing to cancel.
    pub(crate) fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for CancelCallOnDrop {
    fn drop(&mut self) {
        if let Some(of_call) = &self.0 {
            of_call.get().cancel();
        }
    }
}

/// Cancels when it is dropped.
pub(crate) struct CancelOnDrop(Option<CancellationToken>);

impl CancelOnDrop {
    pub(crate) fn new(cancellation: CancellationToken) -> Self {
        Self(Some(cancellation))
    }

    /// What was under way is over: there is nothing to cancel.
    pub(crate) fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(cancellation) = &self.0 {
            cancellation.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_cancelled_with_its_parent_and_alone() {
        let parent = CancellationToken::new();
        let (first, second) = (parent.child(), parent.child());
        let mut waiting = second.child().cancelled();
        assert!((&mut waiting).now_or_never().is_none());
        first.cancel();
        assert!(first.is_cancelled() && !parent.is_cancelled() && !second.is_cancelled());
        assert!(first.cancelled().now_or_never().is_some());
        parent.cancel();
        assert!(second.is_cancelled());
        assert!(waiting.now_or_never().is_some());
    }

    #[test]
    fn what_nobody_can_cancel_any_more_is_not_cancelled() {
        let parent = CancellationToken::new();
        let mut waiting = parent.child().cancelled();
        drop(parent);
        assert!((&mut waiting).now_or_never().is_none());
    }
}
