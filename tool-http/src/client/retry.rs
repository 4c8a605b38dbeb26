//! Retries of requests, with the policy of the official SDKs of OpenAI and Anthropic:
//! <https://github.com/openai/openai-python/blob/main/src/openai/_base_client.py>
//!
//! A request is retried, a started stream is not, because its deltas were already emitted.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tool_core::model::ChatRequest;
use tool_core::provider::EarlierAttempt;

use super::error::Error;
use crate::backoff::Backoff;

/// The default number of retries of a request.
const DEFAULT_MAX_RETRIES: u32 = 2;

/// The delays that the server has not requested.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(8));

/// A limit for the retries of all requests together, so that retries do not triple the load on a failing server. Each
/// request adds a fraction of a retry and each retry takes a whole one. Clones share the budget.
///
/// ```
/// use tool_http::client::RetryBudget;
///
/// // Ten retries at first, then one for every five requests.
/// let budget = RetryBudget::new(10, 0.2);
/// # let _ = budget;
/// ```
#[derive(Clone)]
pub struct RetryBudget(Arc<Inner>);

struct Inner {
    max: f64,
    per_request: f64,
    remaining: Mutex<f64>,
}

impl RetryBudget {
    /// Creates a budget that holds at most `max` retries and starts full. Each request adds `per_request` retries, such as
    /// 0.2.
    #[must_use]
    pub fn new(max: u32, per_request: f64) -> Self {
        let max = f64::from(max);
        // NaN adds nothing, see `add_request`.
        let per_request = per_request.clamp(0.0, max);
        Self(Arc::new(Inner { max, per_request, remaining: Mutex::new(max) }))
    }

    fn add_request(&self) {
        let mut remaining = self.0.remaining.lock().unwrap_or_else(PoisonError::into_inner);
        if self.0.per_request > 0.0 {
            *remaining = (*remaining + self.0.per_request).min(self.0.max);
        }
    }

    fn take_retry(&self) -> bool {
        let mut remaining = self.0.remaining.lock().unwrap_or_else(PoisonError::into_inner);
        let is_enough = *remaining >= 1.0;
        if is_enough {
            *remaining -= 1.0;
        }
        is_enough
    }
}

impl fmt::Debug for RetryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RetryBudget({} at most, {} per request)", self.0.max, self.0.per_request)
    }
}

/// A retry that is about to happen, as passed to the `on_retry` hook of a builder.
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
pub type RetryHook = Arc<dyn Fn(&Retry<'_>) + Send + Sync>;

/// The rules by which requests are retried.
#[derive(Clone)]
pub struct RetryPolicy {
    /// The largest number of retries of a request.
    pub max: u32,
    /// The limit for all requests together.
    pub budget: Option<RetryBudget>,
    /// The function that is called before each retry.
    pub on_retry: Option<RetryHook>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max: DEFAULT_MAX_RETRIES, budget: None, on_retry: None }
    }
}

impl fmt::Debug for RetryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryPolicy")
            .field("max", &self.max)
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}

impl RetryPolicy {
    /// Calls `attempt` until it succeeds or its error must not be retried.
    ///
    /// # Errors
    ///
    /// Returns the error of the last attempt.
    pub async fn run<T, F>(&self, mut attempt: impl FnMut() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut retries = self.start();
        loop {
            match attempt().await {
                Ok(value) => return Ok(value),
                Err(error) => retries.wait(error).await?,
            }
        }
    }

    /// Starts the retries of one request.
    #[must_use]
    pub fn start(&self) -> Retries<'_> {
        if let Some(budget) = &self.budget {
            budget.add_request();
        }
        Retries { policy: self, count: 0 }
    }
}

/// The retries of one request.
#[derive(Debug)]
pub struct Retries<'a> {
    policy: &'a RetryPolicy,
    count: u32,
}

impl Retries<'_> {
    /// Waits until the request may be sent again, and counts the attempt that failed.
    ///
    /// # Errors
    ///
    /// Returns the error itself if the request must not be retried, or why the attempt cannot be counted.
    pub async fn repeat(&mut self, request: &ChatRequest<'_>, error: Error) -> Result<(), Error> {
        let earlier = EarlierAttempt::from_unbilled(error.is_unbilled());
        self.wait(error).await?;
        count_attempt(request, earlier).await
    }

    /// Waits until the request may be sent again.
    ///
    /// # Errors
    ///
    /// Returns the error itself if the request must not be retried.
    pub async fn wait(&mut self, error: Error) -> Result<(), Error> {
        let policy = self.policy;
        if self.count >= policy.max || !error.is_retryable() {
            return Err(error);
        }
        if policy.budget.as_ref().is_some_and(|budget| !budget.take_retry()) {
            return Err(error);
        }
        let delay = error.retry_after().unwrap_or_else(|| BACKOFF.delay(self.count));
        self.count += 1;
        if let Some(on_retry) = &policy.on_retry {
            on_retry(&Retry { number: self.count, delay, error: &error });
        }
        tokio::time::sleep(delay).await;
        Ok(())
    }
}

/// Counts an attempt to answer a request that is followed by another one.
///
/// # Errors
///
/// Fails if there must be no other one, for example because the budget is used up.
pub async fn count_attempt(request: &ChatRequest<'_>, earlier: EarlierAttempt) -> Result<(), Error> {
    request.repeat(earlier).await.map_err(|error| Error::request(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_refill_a_budget() {
        let budget = RetryBudget::new(2, 0.5);
        assert_eq!([(); 3].map(|()| budget.take_retry()), [true, true, false]);
        budget.add_request();
        assert!(!budget.take_retry());
        budget.clone().add_request();
        assert!(budget.take_retry());
        for _ in 0..10 {
            budget.add_request();
        }
        assert_eq!([(); 3].map(|()| budget.take_retry()), [true, true, false]);
        let none = RetryBudget::new(0, f64::NAN);
        none.add_request();
        assert!(!none.take_retry());
    }
}
