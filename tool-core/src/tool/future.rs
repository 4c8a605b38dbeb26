//! The future of one call.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;

use super::output::limit_outcome;
use crate::arguments::Repair;
use crate::tool::{CallHistory, Outcome, ToolError, ToolOutput};

/// The future of one call of a [`Tool`](crate::Tool).
///
/// The future of a synchronous tool contains the outcome and needs no allocation. That of an asynchronous tool is boxed.
pub struct ToolFuture<'a> {
    pending: Pending<'a>,
    history: Option<Box<CallHistory>>,
}

/// A call as the generated code of one tool returns it. It is small, because that code exists once per tool.
pub enum Pending<'a> {
    /// A call that has finished. `None` once the outcome was taken.
    Ready(Option<Outcome>),
    /// A call that must be awaited.
    Boxed(Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>),
    /// A call that executes another, whose history is known when it finishes.
    Wrapping(Wrapped<'a>),
}

type Wrapped<'a> = Pin<Box<dyn Future<Output = Returned> + Send + 'a>>;

/// The outcome of a call, with what has happened to it.
pub(crate) type Returned = (Outcome, Option<Box<CallHistory>>);

impl<'a> Pending<'a> {
    /// Creates the future of a call that has finished.
    #[must_use]
    pub fn ready(outcome: Outcome) -> Self {
        Self::Ready(Some(outcome))
    }

    /// Creates the future of a call that must be awaited.
    #[must_use]
    pub fn boxed(future: impl Future<Output = Outcome> + Send + 'a) -> Self {
        Self::Boxed(Box::pin(future))
    }
}

impl<'a> ToolFuture<'a> {
    /// Creates the future of a call that has finished.
    #[must_use]
    pub fn ready(outcome: Result<ToolOutput, ToolError>) -> Self {
        Self::from(Pending::ready(outcome))
    }

    /// Creates the future of a call that must be awaited.
    #[must_use]
    pub fn boxed(future: impl Future<Output = Result<ToolOutput, ToolError>> + Send + 'a) -> Self {
        Self::from(Pending::boxed(future))
    }

    /// Creates the future of a call that executes another and resolves to its outcome and history.
    pub(crate) fn wrapping(call: impl Future<Output = Returned> + Send + 'a) -> Self {
        Self::from(Pending::Wrapping(Box::pin(call)))
    }

    /// Returns the outcome and the history if the call has finished, or else this future.
    #[inline]
    pub(crate) fn into_outcome(self) -> Result<Returned, Self> {
        match self {
            Self { pending: Pending::Ready(Some(outcome)), history } => Ok((outcome, history)),
            pending => Err(pending),
        }
    }

    /// Takes the call out, so that it can be dropped. It must not be polled after that.
    pub(crate) fn take(&mut self) -> Self {
        Self {
            pending: std::mem::replace(&mut self.pending, Pending::Ready(None)),
            history: self.take_history(),
        }
    }

    /// Returns this call with further repairs of its arguments in front of those it already has.
    pub(crate) fn with_repairs(mut self, mut repairs: Vec<Repair>) -> Self {
        if !repairs.is_empty() {
            let history = self.history.get_or_insert_default();
            repairs.append(&mut history.repairs);
            history.repairs = repairs;
        }
        self
    }

    /// Replaces the call and leaves its history as it is.
    pub(super) fn map_pending(self, map: impl FnOnce(Pending<'a>) -> Pending<'a>) -> Self {
        Self { pending: map(self.pending), history: self.history }
    }

    /// Executes the call, and returns the outcome and the history.
    pub(crate) async fn finish(mut self) -> Returned {
        let outcome = (&mut self).await;
        (outcome, self.take_history())
    }

    /// Takes the history of the call. It is complete once the call has finished.
    pub(crate) fn take_history(&mut self) -> Option<Box<CallHistory>> {
        self.history.take()
    }
}

impl<'a> From<Pending<'a>> for ToolFuture<'a> {
    fn from(pending: Pending<'a>) -> Self {
        Self { pending, history: None }
    }
}

/// Creates the call of an asynchronous function from its future and the conversion of its output.
///
/// Equivalent to an `async` block around both, but cheaper to compile: no state machine is generated per tool.
pub fn later<'a, F>(future: F, convert: fn(F::Output) -> Outcome) -> Pending<'a>
where
    F: Future + Send + 'a,
    F::Output: 'a,
{
    Pending::boxed(Later { future, convert })
}

/// Creates the call of a function that may block, which runs on tokio's pool of blocking threads.
///
/// A thread cannot be stopped, so the function runs to completion even if the call is dropped.
#[must_use]
pub fn blocking<'a>(function: impl FnOnce() -> Outcome + Send + 'static) -> Pending<'a> {
    Pending::boxed(async move { on_blocking_thread(function).await.and_then(|outcome| outcome) })
}

/// Creates the call of a function that reads its arguments and may block, which runs like [`blocking`].
pub(super) fn blocking_call<'a>(
    function: impl FnOnce() -> ToolFuture<'static> + Send + 'static,
) -> ToolFuture<'a> {
    ToolFuture::wrapping(async move {
        match on_blocking_thread(function).await {
            Ok(call) => call.finish().await,
            Err(error) => (Err(error), None),
        }
    })
}

/// Executes a function that takes long on tokio's pool of blocking threads, or at once if there is no runtime.
pub(crate) async fn on_blocking_thread_if_any<T: Send + 'static>(
    function: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ToolError> {
    match tokio::runtime::Handle::try_current() {
        Ok(_) => on_blocking_thread(function).await,
        Err(_) => Ok(function()),
    }
}

async fn on_blocking_thread<T: Send + 'static>(
    function: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ToolError> {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return Err(ToolError::failed("a `blocking` tool must be called within a tokio runtime"));
    };
    // The other thread does not inherit the span of the call.
    #[cfg(feature = "tracing")]
    let function = {
        let span = tracing::Span::current();
        move || span.in_scope(function)
    };
    runtime.spawn_blocking(function).await.map_err(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => ToolError::failed("the tokio runtime was shut down before the tool was called"),
    })
}

/// Limits the duration of a call.
#[inline]
pub(super) fn with_timeout<'a>(pending: Pending<'a>, duration: Duration) -> Pending<'a> {
    match pending {
        Pending::Ready(_) => pending,
        Pending::Boxed(future) => Pending::boxed(async move {
            match tokio::time::timeout(duration, future).await {
                Ok(outcome) => outcome,
                Err(_) => Err(ToolError::timed_out(duration)),
            }
        }),
        Pending::Wrapping(future) => Pending::Wrapping(Box::pin(async move {
            match tokio::time::timeout(duration, future).await {
                Ok(outcome) => outcome,
                Err(_) => (Err(ToolError::timed_out(duration)), None),
            }
        })),
    }
}

/// Truncates the outcome of a call to a number of characters, unless it is stored whole.
#[inline]
pub(super) fn with_max_chars(pending: Pending<'_>, (limit, is_stored): (usize, bool)) -> Pending<'_> {
    map_outcome(pending, move |outcome| limit_outcome(outcome, limit, is_stored))
}

/// Replaces the outcome of a call.
pub(super) fn map_outcome<'a>(
    pending: Pending<'a>,
    map: impl FnOnce(Outcome) -> Outcome + Send + 'a,
) -> Pending<'a> {
    match pending {
        Pending::Ready(outcome) => Pending::Ready(outcome.map(map)),
        Pending::Boxed(future) => Pending::boxed(future.map(map)),
        Pending::Wrapping(future) => {
            Pending::Wrapping(Box::pin(future.map(|(outcome, history)| (map(outcome), history))))
        }
    }
}

pin_project_lite::pin_project! {
    /// `FutureExt::map` with less code. Each asynchronous tool has a copy of it.
    struct Later<F: Future> {
        #[pin]
        future: F,
        convert: fn(F::Output) -> Outcome,
    }
}

impl<F: Future> Future for Later<F> {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let this = self.project();
        this.future.poll(context).map(this.convert)
    }
}

impl Future for ToolFuture<'_> {
    type Output = Outcome;

    /// # Panics
    ///
    /// Panics if it is polled again after completion.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        match &mut self.pending {
            Pending::Ready(outcome) => Poll::Ready(outcome.take().expect("polled after completion")),
            Pending::Boxed(future) => future.as_mut().poll(context),
            Pending::Wrapping(future) => future.as_mut().poll(context).map(|(outcome, history)| {
                if let Some(mut history) = history {
                    history.repairs.splice(0..0, self.history.take().into_iter().flat_map(|own| own.repairs));
                    self.history = Some(history);
                }
                outcome
            }),
        }
    }
}

impl fmt::Debug for ToolFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.pending {
            Pending::Ready(_) => "ToolFuture(ready)",
            Pending::Boxed(_) | Pending::Wrapping(_) => "ToolFuture(boxed)",
        })
    }
}

impl fmt::Debug for Pending<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}
