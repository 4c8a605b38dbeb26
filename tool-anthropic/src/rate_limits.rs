//! The rate limits that responses report.

use reqwest::header::HeaderMap;

/// The limits of the account and what remains of them, as each response reports them: see
/// [`on_rate_limits`](crate::AnthropicBuilder::on_rate_limits).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateLimits {
    /// Requests.
    pub requests: RateLimit,
    /// Input and output tokens together.
    pub tokens: RateLimit,
    /// Input tokens.
    pub input_tokens: RateLimit,
    /// Output tokens.
    pub output_tokens: RateLimit,
}

/// One limit. What the server does not report is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateLimit {
    /// The number that is allowed in a period of time.
    pub limit: Option<u64>,
    /// The number that remains.
    pub remaining: Option<u64>,
    /// When the limit is fully replenished, as an RFC 3339 time.
    pub reset: Option<String>,
}

impl RateLimits {
    /// Reads the headers `anthropic-ratelimit-*`. Returns `None` if there are none.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let text = |kind: &str, field: &str| {
            let value = headers.get(format!("anthropic-ratelimit-{kind}-{field}"))?;
            value.to_str().ok().map(str::to_owned)
        };
        let limit = |kind: &str| RateLimit {
            limit: text(kind, "limit").and_then(|text| text.parse().ok()),
            remaining: text(kind, "remaining").and_then(|text| text.parse().ok()),
            reset: text(kind, "reset"),
        };
        let limits = Self {
            requests: limit("requests"),
            tokens: limit("tokens"),
            input_tokens: limit("input-tokens"),
            output_tokens: limit("output-tokens"),
        };
        (limits != Self::default()).then_some(limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_headers() {
        let mut headers = HeaderMap::new();
        assert_eq!(RateLimits::from_headers(&headers), None);
        for (name, value) in [
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-reset", "2026-11-23T12:00:07Z"),
            ("anthropic-ratelimit-input-tokens-remaining", "12000"),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        let limits = RateLimits::from_headers(&headers).unwrap();
        let reset = Some("2026-11-23T12:00:07Z".to_owned());
        assert_eq!(limits.requests, RateLimit { limit: Some(50), remaining: None, reset });
        assert_eq!(limits.input_tokens.remaining, Some(12000));
        assert_eq!(limits.tokens, RateLimit::default());
    }
}
