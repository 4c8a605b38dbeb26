//! Sends requests, with retries, and separates responses from errors.

use std::fmt;
use std::sync::Arc;

use reqwest::Url;
use reqwest::header::HeaderMap;
use tool_http::client::{
    BadResponse, Connection, RequestBody, RetryHeaders, RetryPolicy, SendError, Success, read_body,
};

use crate::endpoint::Endpoint;
use crate::error::{ApiError, Error};
use crate::rate_limits::{RateLimits, RateLimitsHook};
use crate::warning::{Warning, WarningHook};

/// The longest response that is read: far more than a model writes.
pub(crate) const MAX_BODY_BYTES: usize = 64 << 20;

/// The longest description of a model or count of tokens that is read.
const MAX_INFO_BYTES: usize = 1 << 20;

/// The part of an error in a stream that is read. Small values take a multiple of their text in memory.
const MAX_ERROR_CHARS: usize = 16 << 10;

/// A retry that is about to happen, as passed to the [`on_retry`](crate::AnthropicBuilder::on_retry) hook.
pub type Retry<'a> = tool_http::client::Retry<'a, Error>;

/// The functions that a program has set.
#[derive(Clone, Default)]
pub(crate) struct Hooks {
    pub(crate) on_warning: Option<WarningHook>,
    pub(crate) on_rate_limits: Option<RateLimitsHook>,
}

/// The connections to one endpoint and its configuration.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) retry: RetryPolicy<Error>,
    pub(crate) hooks: Hooks,
}

impl Client {
    /// Returns the URL of a path below `/v1`, which the base URL can contain or not.
    pub(crate) fn url(&self, path: &str) -> Url {
        let has_version = self.connection.base_url().path().trim_end_matches('/').ends_with("/v1");
        if has_version { self.connection.url(path) } else { self.connection.url(&format!("v1/{path}")) }
    }

    /// Sends JSON, or asks for it if there is no body, and returns the response if its status reports success.
    pub(crate) async fn send(
        &self,
        url: &Url,
        body: Option<&RequestBody>,
        accept: &'static str,
    ) -> Result<Success, Error> {
        let method = if body.is_some() { "POST" } else { "GET" };
        let (headers, reason) = match self.connection.send(url.clone(), body, accept).await {
            Ok(success) => {
                self.report_limits(success.response.headers());
                return Ok(success);
            }
            Err(SendError::Transport(error)) => {
                return Err(Error::transport(error).with_request(method, url, None));
            }
            Err(SendError::Response { headers, reason }) => (headers, reason),
        };
        self.report_limits(&headers);
        let error = match reason {
            BadResponse::Compressed(message) => Error::invalid_response(message),
            BadResponse::Redirected(status, location) => Error::redirected(status, &location),
            BadResponse::Status(status, body) => {
                let context = ApiError {
                    status: Some(status),
                    retry: RetryHeaders::from_headers(&headers),
                    lacks_key: !self.connection.sends_any(&["x-api-key", "authorization"]),
                    ..ApiError::default()
                };
                Error::api(&String::from_utf8_lossy(&body), context, |text| self.connection.redact(text))
            }
        };
        Err(error.with_request(method, url, self.request_id(&headers).as_deref()))
    }

    /// Sends JSON, or asks for it if there is no body, and parses the response, which is short. `parse` returns `None` if the response
    /// does not follow the API.
    pub(crate) async fn fetch<T>(
        &self,
        url: &Url,
        body: Option<&RequestBody>,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, Error> {
        let success = self.send(url, body, "application/json").await?;
        let id = self.request_id(success.response.headers());
        let text = read(success, MAX_INFO_BYTES).await;
        let invalid = || Error::invalid_response("the response does not follow the API; check the base URL");
        let parsed = text.and_then(|text| parse(&text).ok_or_else(invalid));
        let method = if body.is_some() { "POST" } else { "GET" };
        parsed.map_err(|error| error.with_request(method, url, id.as_deref()))
    }

    /// Returns the error that a response with a status of success reports.
    pub(crate) fn api_error(&self, json: &str) -> Error {
        // Redacted before it is truncated, because part of a key would not be found.
        let start: String = self.connection.redact(json).chars().take(MAX_ERROR_CHARS).collect();
        Error::api(&start, ApiError::default(), |text| self.connection.redact(text))
    }

    /// Returns the id that the server has given to a request.
    pub(crate) fn request_id(&self, headers: &HeaderMap) -> Option<String> {
        let id = headers.get("request-id").or_else(|| headers.get("x-request-id"))?;
        Some(self.connection.redact(id.to_str().ok()?))
    }

    /// Reports a change to a request.
    pub(crate) fn warn(&self, warning: &Warning<'_>) {
        if let Some(on_warning) = &self.hooks.on_warning {
            on_warning(warning);
        }
    }

    fn report_limits(&self, headers: &HeaderMap) {
        if let Some(on_rate_limits) = &self.hooks.on_rate_limits
            && let Some(limits) = RateLimits::from_headers(headers)
        {
            on_rate_limits(&limits);
        }
    }
}

/// Reads the whole body of a response.
pub(crate) async fn read(mut success: Success, max_bytes: usize) -> Result<String, Error> {
    match read_body(&mut success.response, max_bytes).await {
        Ok(body) if !body.is_truncated => Ok(String::from_utf8_lossy(&body.bytes).into_owned()),
        Ok(_) => Err(Error::invalid_response(format!("the response is longer than {max_bytes} bytes"))),
        Err(error) => Err(Error::transport(error)),
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("connection", &self.connection).finish_non_exhaustive()
    }
}
