//! When a request is sent again: the policy of the official SDK.
//! <https://github.com/openai/openai-python/blob/main/src/openai/_base_client.py>

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use reqwest::header::HeaderMap;

use crate::Error;

/// How often a request is sent again, unless it is set.
pub(crate) const DEFAULT_MAX_RETRIES: u32 = 2;

/// The delay before the first retry; each one doubles it.
const FIRST_DELAY: Duration = Duration::from_millis(500);

/// The longest delay that is not the server's wish.
const LONGEST_DELAY: Duration = Duration::from_secs(8);

/// The longest wish of a server that is granted.
const LONGEST_WISH: Duration = Duration::from_secs(120);

/// A request that is going to be sent again, as a [hook](crate::OpenAiBuilder::on_retry) is told of it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Retry<'a> {
    /// Which retry it is, from 1.
    pub number: u32,
    /// How long is waited before.
    pub delay: Duration,
    /// Why.
    pub error: &'a Error,
}

/// What bounds the retries of all requests together, so that a server in trouble is not asked three times as much: each
/// request adds a share of a retry, and each retry takes a whole one. Cloning shares it.
///
/// ```
/// use tool_openai::{OpenAi, RetryBudget};
///
/// // Ten at once, and then one for every five requests.
/// let openai = OpenAi::builder().base_url("http://127.0.0.1/v1").retry_budget(RetryBudget::new(10, 0.2)).build()?;
/// # Ok::<_, tool_openai::Error>(())
/// ```
#[derive(Clone)]
pub struct RetryBudget(Arc<Inner>);

struct Inner {
    most: f64,
    per_request: f64,
    left: Mutex<f64>,
}

impl RetryBudget {
    /// At most so many retries at once, and so many for each request, such as 0.2.
    #[must_use]
    pub fn new(most: u32, per_request: f64) -> Self {
        let most = f64::from(most);
        // What is no number adds nothing.
        let per_request = per_request.clamp(0.0, most);
        Self(Arc::new(Inner { most, per_request, left: Mutex::new(most) }))
    }

    fn add_request(&self) {
        let mut left = self.0.left.lock().unwrap_or_else(PoisonError::into_inner);
        if self.0.per_request > 0.0 {
            *left = (*left + self.0.per_request).min(self.0.most);
        }
    }

    fn take_retry(&self) -> bool {
        let mut left = self.0.left.lock().unwrap_or_else(PoisonError::into_inner);
        let is_enough = *left >= 1.0;
        if is_enough {
            *left -= 1.0;
        }
        is_enough
    }
}

impl fmt::Debug for RetryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RetryBudget({} at once, {} per request)", self.0.most, self.0.per_request)
    }
}

/// A function that is told of retries.
pub(crate) type RetryHook = Arc<dyn Fn(&Retry<'_>) + Send + Sync>;

/// How requests are sent again.
#[derive(Clone)]
pub(crate) struct RetryPolicy {
    pub(crate) max: u32,
    pub(crate) budget: Option<RetryBudget>,
    pub(crate) on_retry: Option<RetryHook>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max: DEFAULT_MAX_RETRIES, budget: None, on_retry: None }
    }
}

impl RetryPolicy {
    /// The retries of one request.
    pub(crate) fn begin(&self) -> Retries<'_> {
        if let Some(budget) = &self.budget {
            budget.add_request();
        }
        Retries { policy: self, so_far: 0 }
    }
}

/// The retries of one request.
pub(crate) struct Retries<'a> {
    policy: &'a RetryPolicy,
    so_far: u32,
}

impl Retries<'_> {
    /// Waits until the request may be sent again.
    ///
    /// # Errors
    ///
    /// The error itself, if the request is not to be sent again.
    pub(crate) async fn after(&mut self, error: Error) -> Result<(), Error> {
        let policy = self.policy;
        if self.so_far >= policy.max || !error.is_retryable() {
            return Err(error);
        }
        if policy.budget.as_ref().is_some_and(|budget| !budget.take_retry()) {
            return Err(error);
        }
        let delay = match error.retry_after() {
            Some(wish) => wish,
            None => own_delay(self.so_far, fastrand::f64()),
        };
        self.so_far += 1;
        if let Some(on_retry) = &policy.on_retry {
            on_retry(&Retry { number: self.so_far, delay, error: &error });
        }
        tokio::time::sleep(delay).await;
        Ok(())
    }
}

/// The delay where the server has no wish; `random` from 0 to 1 spreads those who failed together.
fn own_delay(so_far: u32, random: f64) -> Duration {
    let doubled = FIRST_DELAY.saturating_mul(2_u32.saturating_pow(so_far.min(30)));
    doubled.min(LONGEST_DELAY).mul_f64(1.0 - 0.25 * random)
}

/// What the headers of an answer say of sending again.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RetryHeaders {
    /// How long the server wishes to be left alone.
    pub(crate) after: Option<Duration>,
    /// Whether to send again, in the server's opinion.
    pub(crate) should: Option<bool>,
}

impl RetryHeaders {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self::of_texts(|name| headers.get(name)?.to_str().ok(), SystemTime::now())
    }

    fn of_texts<'a>(get: impl Fn(&str) -> Option<&'a str>, now: SystemTime) -> Self {
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
        let milliseconds = get("retry-after-ms").and_then(number).map(|number| number / 1000.0);
        let seconds = || get("retry-after").and_then(number);
        let until = || {
            let time = httpdate::parse_http_date(get("retry-after")?.trim()).ok()?;
            Some(time.duration_since(now).map_or(0.0, |left| left.as_secs_f64()))
        };
        let wish = milliseconds.or_else(seconds).or_else(until).filter(|wish| *wish > 0.0);
        let should = match get("x-should-retry").map(str::trim) {
            Some("true") => Some(true),
            Some("false") => Some(false),
            _ => None,
        };
        // What is beyond any duration is surely too long.
        let after = wish.map(|wish| Duration::try_from_secs_f64(wish).unwrap_or(Duration::MAX));
        Self { after, should }
    }

    /// The server wishes to be left alone for longer than anybody waits.
    pub(crate) fn is_too_long(&self) -> bool {
        self.after.is_some_and(|wish| wish > LONGEST_WISH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_its_most() {
        let table =
            [(0, 0.0, 0.5), (1, 0.0, 1.0), (2, 1.0, 1.5), (4, 0.0, 8.0), (5, 1.0, 6.0), (u32::MAX, 0.0, 8.0)];
        for (so_far, random, expected) in table {
            assert_eq!(own_delay(so_far, random), Duration::from_secs_f64(expected), "{so_far} {random}");
        }
    }

    #[test]
    fn what_headers_say() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        // The headers, the wish in milliseconds, and whether to send again.
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
            let read = RetryHeaders::of_texts(get, now);
            let expected = RetryHeaders { after: after.map(Duration::from_millis), should };
            assert_eq!(read, expected, "{headers:?}");
            assert_eq!(read.is_too_long(), after == Some(130_000), "{headers:?}");
        }
        let endless = RetryHeaders::of_texts(|name| (name == "retry-after").then_some("1e300"), now);
        assert!(endless.is_too_long());
    }

    #[test]
    fn a_budget_is_filled_by_requests() {
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
