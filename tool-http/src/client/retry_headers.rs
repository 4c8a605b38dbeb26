//! What a response requests about retries.

use std::time::{Duration, SystemTime};

use reqwest::header::HeaderMap;

use super::error_kind::ErrorKind;

/// The longest delay requested by a server that is respected; a longer one prevents the retry.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);

/// The headers of a response that concern retries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RetryHeaders {
    /// The delay that the server requests.
    pub(super) after: Option<Duration>,
    /// `true` if the server requests a retry, `false` if it forbids one.
    pub(super) should: Option<bool>,
}

impl RetryHeaders {
    /// Reads the headers `retry-after-ms`, `retry-after` and `x-should-retry`.
    pub(super) fn from_headers(headers: &HeaderMap) -> Self {
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
    pub(super) fn allow_retry_after(&self, kind: ErrorKind) -> bool {
        match self.should {
            _ if self.is_too_long() => false,
            _ if matches!(kind, ErrorKind::Quota | ErrorKind::ContextLength) => false,
            Some(should) => should,
            None => kind.is_transient(),
        }
    }

    /// Returns `true` if the requested delay is too long to wait for.
    pub(super) fn is_too_long(&self) -> bool {
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
}
