//! Retries of requests, with the policy of the official SDKs of OpenAI and Anthropic:
//! <https://github.com/openai/openai-python/blob/main/src/openai/_base_client.py>

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use reqwest::header::HeaderMap;

use super::error_kind::ErrorKind;
use crate::backoff::Backoff;

/// The default number of retries of a request.
const DEFAULT_MAX_RETRIES: u32 = 2;

/// The delays that the server has not requested.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(8));

/// The longest delay requested by a server that is respected; a longer one prevents the retry.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);

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

/// An error after which the same request may succeed.
pub trait Retryable {
    /// Returns `true` if the same request may succeed if it is sent again.
    fn is_retryable(&self) -> bool;

    /// Returns the delay that the server requests.
    fn retry_after(&self) -> Option<Duration>;
}

/// A retry that is about to happen, as passed to a [`RetryHook`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Retry<'a, E> {
    /// The number of the retry, starting at 1.
    pub number: u32,
    /// The delay before the retry.
    pub delay: Duration,
    /// The error that caused the retry.
    pub error: &'a E,
}

/// A function that is called before each retry.
pub type RetryHook<E> = Arc<dyn Fn(&Retry<'_, E>) + Send + Sync>;

/// The rules by which requests are retried.
pub struct RetryPolicy<E> {
    /// The largest number of retries of a request.
    pub max: u32,
    /// The limit for all requests together.
    pub budget: Option<RetryBudget>,
    /// The function that is called before each retry.
    pub on_retry: Option<RetryHook<E>>,
}

impl<E> Default for RetryPolicy<E> {
    fn default() -> Self {
        Self { max: DEFAULT_MAX_RETRIES, budget: None, on_retry: None }
    }
}

impl<E> Clone for RetryPolicy<E> {
    fn clone(&self) -> Self {
        Self { max: self.max, budget: self.budget.clone(), on_retry: self.on_retry.clone() }
    }
}

impl<E> fmt::Debug for RetryPolicy<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryPolicy")
            .field("max", &self.max)
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}

impl<E: Retryable> RetryPolicy<E> {
    /// Calls `attempt` until it succeeds or its error must not be retried.
    ///
    /// # Errors
    ///
    /// Returns the error of the last attempt.
    pub async fn run<T, F>(&self, mut attempt: impl FnMut() -> F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
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
    pub fn start(&self) -> Retries<'_, E> {
        if let Some(budget) = &self.budget {
            budget.add_request();
        }
        Retries { policy: self, count: 0 }
    }
}

/// The retries of one request.
#[derive(Debug)]
pub struct Retries<'a, E> {
    policy: &'a RetryPolicy<E>,
    count: u32,
}

impl<E: Retryable> Retries<'_, E> {
    /// Waits until the request may be sent again.
    ///
    /// # Errors
    ///
    /// Returns the error itself if the request must not be retried.
    pub async fn wait(&mut self, error: E) -> Result<(), E> {
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
        drop(error);
        tokio::time::sleep(delay).await;
        Ok(())
    }
}

/// The headers of a response that concern retries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryHeaders {
    /// The delay that the server requests.
    pub after: Option<Duration>,
    /// `true` if the server requests a retry, `false` if it forbids one.
    pub should: Option<bool>,
}

impl RetryHeaders {
    /// Reads the headers `retry-after-ms`, `retry-after` and `x-should-retry`.
    #[must_use]
    pub fn from_headers(headers: &HeaderMap) -> Self {
        Self::parse(|name| headers.get(name)?.to_str().ok(), SystemTime::now())
    }

    fn parse<'a>(get: impl Fn(&str) -> Option<&'a str>, now: SystemTime) -> Self {
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
        let milliseconds = get("retry-after-ms").and_then(number).map(|number| number / 1000.0);
        let seconds = || get("retry-after").and_then(number);
        let until = || {
            let time = httpdate::parse_http_date(get("retry-after")?.trim()).ok()?;
            Some(time.duration_since(now).map_or(0.0, |delay| delay.as_secs_f64()))
        };
        let seconds = milliseconds.or_else(seconds).or_else(until).filter(|seconds| *seconds > 0.0);
        let should = match get("x-should-retry").map(str::trim) {
            Some("true") => Some(true),
            Some("false") => Some(false),
            _ => None,
        };
        // A number beyond any duration is certainly too long.
        let after = seconds.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
        Self { after, should }
    }

    /// Returns `true` if a request that failed with an error of this kind may be sent again.
    #[must_use]
    pub fn allow_retry_after(&self, kind: ErrorKind) -> bool {
        match self.should {
            _ if self.is_too_long() => false,
            _ if matches!(kind, ErrorKind::Quota | ErrorKind::ContextLength) => false,
            Some(should) => should,
            None => kind.is_transient(),
        }
    }

    /// Returns `true` if the requested delay is too long to wait for.
    #[must_use]
    pub fn is_too_long(&self) -> bool {
        self.after.is_some_and(|delay| delay > MAX_RETRY_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_retry_headers() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        // The headers, the delay in milliseconds, and whether to retry.
        type Row = (&'static [(&'static str, &'static str)], Option<u64>, Option<bool>);
        let table: [Row; 11] = [
            (&[], None, None),
            (&[("retry-after", "7")], Some(7000), None),
            (&[("retry-after", "0.25")], Some(250), None),
            (&[("retry-after", "7"), ("retry-after-ms", "1500")], Some(1500), None),
            (&[("retry-after", "7"), ("retry-after-ms", "soon")], Some(7000), None),
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT")], Some(10_000), None),
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:07 GMT")], None, None),
            (&[("retry-after", "-1")], None, None),
            (&[("retry-after", "NaN")], None, None),
            (&[("x-should-retry", "true")], None, Some(true)),
            (&[("x-should-retry", "false"), ("retry-after", "130")], Some(130_000), Some(false)),
        ];
        for (headers, after, should) in table {
            let get = |name: &str| headers.iter().find(|header| header.0 == name).map(|header| header.1);
            let parsed = RetryHeaders::parse(get, now);
            let expected = RetryHeaders { after: after.map(Duration::from_millis), should };
            assert_eq!(parsed, expected, "{headers:?}");
            assert_eq!(parsed.is_too_long(), after == Some(130_000), "{headers:?}");
        }
        let endless = RetryHeaders::parse(|name| (name == "retry-after").then_some("1e300"), now);
        assert!(endless.is_too_long());
    }

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
