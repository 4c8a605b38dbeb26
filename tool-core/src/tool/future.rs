//! The future of one call.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;

use super::output::keep_within;
use crate::arguments::Repair;
use crate::tool::{ToolError, ToolOutput};

type Outcome = Result<ToolOutput, ToolError>;

/// The future of one call of a [`Tool`](crate::Tool).
///
/// A synchronous tool is done when it returns, so its future holds the outcome and costs no allocation;
/// an asynchronous one is boxed.
pub struct ToolFuture<'a> {
    pending: Pending<'a>,
    repairs: Vec<Repair>,
}

/// What the code of one tool gives: as little as there is to a call, because that code is there for every tool.
pub enum Pending<'a> {
    /// A call that is over; nothing once the outcome was taken.
    Ready(Option<Outcome>),
    /// A call that has to be awaited.
    Boxed(Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>),
    /// A call that makes another, and knows what was mended when that is over.
    Around(Pin<Box<dyn Future<Output = (Outcome, Vec<Repair>)> + Send + 'a>>),
}

impl<'a> Pending<'a> {
    /// A call that is already over.
    #[must_use]
    pub fn ready(outcome: Outcome) -> Self {
        Self::Ready(Some(outcome))
    }

    /// A call that has to be awaited.
    #[must_use]
    pub fn boxed(future: impl Future<Output = Outcome> + Send + 'a) -> Self {
        Self::Boxed(Box::pin(future))
    }
}

impl<'a> ToolFuture<'a> {
    /// A call that is already over.
    ///
    /// ```
    /// use tool_core::tool::ToolFuture;
    /// use tool_core::ToolOutput;
    ///
    /// let future = ToolFuture::ready(Ok(ToolOutput::text("done")));
    /// # let _ = future;
    /// ```
    #[must_use]
    pub fn ready(outcome: Result<ToolOutput, ToolError>) -> Self {
        Self::from(Pending::ready(outcome))
    }

    /// A call that has to be awaited.
    ///
    /// ```
    /// use tool_core::tool::ToolFuture;
    /// use tool_core::ToolOutput;
    ///
    /// let future = ToolFuture::boxed(async { Ok(ToolOutput::text("done")) });
    /// # let _ = future;
    /// ```
    #[must_use]
    pub fn boxed(future: impl Future<Output = Result<ToolOutput, ToolError>> + Send + 'a) -> Self {
        Self::from(Pending::boxed(future))
    }

    /// A call that makes another one, and gives its outcome and what was mended for it.
    pub(crate) fn around(call: impl Future<Output = (Outcome, Vec<Repair>)> + Send + 'a) -> Self {
        Self::from(Pending::Around(Box::pin(call)))
    }

    /// The outcome and what was mended, if the call is over already.
    #[inline]
    pub(crate) fn into_outcome(self) -> Result<(Outcome, Vec<Repair>), Self> {
        match self {
            Self { pending: Pending::Ready(Some(outcome)), repairs } => Ok((outcome, repairs)),
            under_way => Err(under_way),
        }
    }

    /// The same call, with what was mended in its arguments; in front of what was mended already.
    pub(crate) fn with_repairs(mut self, mut repairs: Vec<Repair>) -> Self {
        repairs.extend(self.take_repairs());
        self.repairs = repairs;
        self
    }

    /// What was mended in the arguments; all of it when the call is over.
    pub(crate) fn take_repairs(&mut self) -> Vec<Repair> {
        std::mem::take(&mut self.repairs)
    }
}

impl<'a> From<Pending<'a>> for ToolFuture<'a> {
    fn from(pending: Pending<'a>) -> Self {
        Self { pending, repairs: Vec::new() }
    }
}

/// The call of an asynchronous function: its future, and what makes an outcome of what it gives.
///
/// The same as an `async` block around both, but cheaper to compile: no state machine is made per tool.
pub fn later<'a, F>(future: F, convert: fn(F::Output) -> Outcome) -> Pending<'a>
where
    F: Future + Send + 'a,
    F::Output: 'a,
{
    Pending::boxed(Later { future, convert })
}

/// The call of a function that may block: it runs on tokio's pool of threads for that.
///
/// A thread cannot be stopped, so the function runs to its end even when nobody waits for it any more.
#[must_use]
pub fn blocking<'a>(function: impl FnOnce() -> Outcome + Send + 'static) -> Pending<'a> {
    Pending::boxed(async move {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return Err(ToolError::failed("a tool with `blocking` needs a tokio runtime around it"));
        };
        // The other thread knows nothing of the span that the call is made in.
        #[cfg(feature = "tracing")]
        let function = {
            let span = tracing::Span::current();
            move || span.in_scope(function)
        };
        match runtime.spawn_blocking(function).await {
            Ok(outcome) => outcome,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(ToolError::failed("the runtime was shut down before the tool was called")),
            },
        }
    })
}

/// The same call, ended when it takes longer than it may.
#[inline]
pub(super) fn within<'a>(pending: Pending<'a>, duration: Duration) -> Pending<'a> {
    let Pending::Boxed(future) = pending else { return pending };
    Pending::boxed(async move {
        match tokio::time::timeout(duration, future).await {
            Ok(outcome) => outcome,
            Err(_) => Err(ToolError::timed_out(duration)),
        }
    })
}

/// The same call, with what it gives back cut to so many characters.
#[inline]
pub(super) fn cut(pending: Pending<'_>, characters: usize) -> Pending<'_> {
    match pending {
        Pending::Ready(outcome) => Pending::Ready(outcome.map(|outcome| keep_within(outcome, characters))),
        Pending::Boxed(future) => Pending::boxed(future.map(move |outcome| keep_within(outcome, characters))),
        // No `#[tool]` makes one.
        around @ Pending::Around(_) => around,
    }
}

pin_project_lite::pin_project! {
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
    /// When it is polled again after it was ready, as any future may.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        match &mut self.pending {
            Pending::Ready(outcome) => Poll::Ready(outcome.take().expect("polled after it was ready")),
            Pending::Boxed(future) => future.as_mut().poll(context),
            Pending::Around(future) => future.as_mut().poll(context).map(|(outcome, repairs)| {
                self.repairs.extend(repairs);
                outcome
            }),
        }
    }
}

impl fmt::Debug for ToolFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.pending {
            Pending::Ready(_) => "ToolFuture(ready)",
            Pending::Boxed(_) | Pending::Around(_) => "ToolFuture(boxed)",
        })
    }
}

impl fmt::Debug for Pending<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}
