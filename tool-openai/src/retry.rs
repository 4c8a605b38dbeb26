//! Retries of requests.

use std::sync::Arc;
use std::time::Duration;

pub use tool_http::client::RetryBudget;
use tool_http::client::{self, Retryable};

use crate::error::Error;

/// A retry that is about to happen, as passed to the [`on_retry`](crate::OpenAiBuilder::on_retry) hook.
#[derive(Debug)]
#[non_exhaustive]
pub struct Retry<'a> {
    /// The number of the retry, starting at 1.
    pub number: u32,
    /// The delay before the retry.
    pub delay: Duration,
    /// The error that caused the retry.
    pub error: &'a Error,
}

/// A function that is called before each retry.
pub(crate) type RetryHook = Arc<dyn Fn(&Retry<'_>) + Send + Sync>;

/// The rules by which requests are retried.
#[derive(Clone, Default)]
pub(crate) struct RetryPolicy {
    pub(crate) limits: client::RetryPolicy,
    pub(crate) on_retry: Option<RetryHook>,
}

impl RetryPolicy {
    /// Starts the retries of one request.
    pub(crate) fn start(&self) -> Retries<'_> {
        Retries { retries: self.limits.start(), on_retry: self.on_retry.as_deref() }
    }
}

/// The retries of one request.
pub(crate) struct Retries<'a> {
    retries: client::Retries<'a>,
    on_retry: Option<&'a (dyn Fn(&Retry<'_>) + Send + Sync)>,
}

impl Retries<'_> {
    /// Waits until the request may be sent again.
    ///
    /// # Errors
    ///
    /// Returns the error itself if the request must not be retried.
    pub(crate) async fn wait(&mut self, error: Error) -> Result<(), Error> {
        let notify = |number, delay, error: &Error| {
            if let Some(on_retry) = self.on_retry {
                on_retry(&Retry { number, delay, error });
            }
        };
        self.retries.wait(error, notify).await
    }
}

impl Retryable for Error {
    fn is_retryable(&self) -> bool {
        self.is_retryable()
    }

    fn retry_after(&self) -> Option<Duration> {
        self.retry_after()
    }
}
