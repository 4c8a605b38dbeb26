//! Errors of the endpoint.

mod api;
mod kind;

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use reqwest::{StatusCode, Url};
use tool_core::model::{ChatResponse, ModelError};
use tool_core::{RunError, RunErrorKind};
pub use tool_http::client::ErrorKind;
use tool_http::client::{
    ConfigError, FieldError, MAX_EXCERPT_CHARS, MAX_MESSAGE_CHARS, Retryable, error_name, excerpt,
    redact_url, root_cause,
};

pub(crate) use self::api::ApiError;
use self::kind::classify;

/// An error of the endpoint. `Display` is one line with the request, the status, what the server sent, and the id of the request.
/// Neither it nor the `Debug` output contains the key.
///
/// A [`ChatModel`](tool_core::ChatModel) returns a [`ModelError`] that wraps this error. [`Error::find_in`] returns it from
/// the [`RunError`](tool_core::RunError) of a run that it ended:
///
/// ```
/// use tool_anthropic::{Error, ErrorKind};
/// use tool_core::RunError;
///
/// fn advice(error: &RunError) -> String {
///     let Some(error) = Error::find_in(error) else { return "not an error of the endpoint".into() };
///     match error.kind() {
///         ErrorKind::ContextLength => "ask with less history".into(),
///         ErrorKind::Quota => "pay the bill".into(), // can also be status 429, but waiting does not help
///         // The request was already retried `max_retries` times.
///         _ if error.is_retryable() => format!("ask again in {:?}", error.retry_after().unwrap_or_default()),
///         _ => format!("contact the provider about request {:?}", error.request_id()),
///     }
/// }
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    cause: Cause,
    /// The method and URL of the request that failed, once it is known.
    request: Option<String>,
    request_id: Option<String>,
    /// The body of the response, without secrets.
    body: Option<String>,
    /// The response so far, if a stream failed.
    partial: Option<ChatResponse>,
}

enum Cause {
    Config(String),
    Request(String),
    Transport(reqwest::Error),
    Api(ApiError),
    Redirected(StatusCode, String),
    InvalidResponse(String),
    Incomplete(Option<Error>),
}

impl Error {
    fn new(cause: Cause) -> Self {
        Self(Box::new(Inner { cause, request: None, request_id: None, body: None, partial: None }))
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(Cause::Config(message.into()))
    }

    /// Creates an error for a request that cannot be sent.
    pub(crate) fn request(message: impl Into<String>) -> Self {
        Self::new(Cause::Request(message.into()))
    }

    pub(crate) fn transport(error: reqwest::Error) -> Self {
        Self::new(Cause::Transport(error.without_url()))
    }

    /// Creates an error for a response that reports one. `redact` removes secrets from a text; `context` has what is known besides
    /// the body.
    pub(crate) fn api(body: &str, context: ApiError, redact: impl Fn(&str) -> String) -> Self {
        // Redacted before it is truncated, because part of a key would not be found.
        let redacted_body = redact(body);
        let parsed = ApiError::parse(body).unwrap_or_else(|| {
            let message = match excerpt(&redacted_body, MAX_EXCERPT_CHARS).as_str() {
                "" => "the response body is empty".to_owned(),
                excerpt => format!("unexpected text `{excerpt}`"),
            };
            ApiError { message, ..ApiError::default() }
        });
        let redact_option = |text: Option<String>| text.as_deref().map(&redact);
        let request_id = redact_option(parsed.request_id);
        let mut error = Self::new(Cause::Api(ApiError {
            message: redact(&parsed.message),
            error_type: redact_option(parsed.error_type),
            code: redact_option(parsed.code),
            ..context
        }));
        error.0.body = Some(redacted_body);
        error.0.request_id = request_id;
        error
    }

    pub(crate) fn redirected(status: StatusCode, location: &str) -> Self {
        Self::new(Cause::Redirected(status, excerpt(location, MAX_EXCERPT_CHARS)))
    }

    pub(crate) fn invalid_response(message: impl Into<String>) -> Self {
        Self::new(Cause::InvalidResponse(message.into()))
    }

    /// Creates an error for a stream that ended too early.
    pub(crate) fn incomplete(cause: Option<Self>) -> Self {
        Self::new(Cause::Incomplete(cause))
    }

    /// Adds the request that failed, and its id, unless they are known.
    pub(crate) fn with_request(mut self, method: &str, url: &Url, id: Option<&str>) -> Self {
        self.0.request.get_or_insert_with(|| format!("{method} {}", redact_url(url)));
        self.0.request_id = self.0.request_id.or_else(|| id.map(str::to_owned));
        self
    }

    pub(crate) fn with_partial(mut self, partial: ChatResponse) -> Self {
        self.0.partial = Some(partial);
        self
    }

    /// Returns the endpoint's error that ended the run, if there is one.
    #[must_use]
    pub fn find_in(error: &RunError) -> Option<&Self> {
        match error.kind() {
            RunErrorKind::Model(error) => error.downcast_ref(),
            _ => None,
        }
    }

    /// Returns the kind of error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match &self.0.cause {
            Cause::Config(_) => ErrorKind::Config,
            Cause::Request(_) => ErrorKind::InvalidRequest,
            Cause::Transport(error) if error.is_timeout() => ErrorKind::Timeout,
            Cause::Transport(error) if error.is_connect() => ErrorKind::Connect,
            Cause::Transport(_) => ErrorKind::Transport,
            Cause::Api(error) => classify(error),
            Cause::Redirected(..) | Cause::InvalidResponse(_) => ErrorKind::InvalidResponse,
            Cause::Incomplete(_) => ErrorKind::Incomplete,
        }
    }

    /// Returns `true` if the request certainly costs nothing: it was not sent or was rejected.
    pub(crate) fn is_unbilled(&self) -> bool {
        match self.kind() {
            ErrorKind::Config | ErrorKind::Connect => true,
            _ => match &self.0.cause {
                Cause::Request(_) => true,
                _ => self.0.partial.is_none() && self.status().is_some_and(ErrorKind::is_rejection),
            },
        }
    }

    /// Returns `true` if the endpoint took too long, before the response or in the middle of a stream.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        match &self.0.cause {
            Cause::Incomplete(Some(cause)) => cause.is_timeout(),
            _ => self.kind() == ErrorKind::Timeout,
        }
    }

    /// Returns `true` if the same request may succeed if it is sent again: the connection failed, or the server failed or
    /// is overloaded. Requests are [retried](crate::AnthropicBuilder::max_retries) before such an error is returned, except
    /// streams that have started.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match &self.0.cause {
            Cause::Transport(error) => !error.is_builder() && !error.is_redirect(),
            Cause::Api(error) => error.retry.allow_retry_after(classify(error)),
            Cause::Incomplete(cause) => cause.as_ref().is_none_or(Self::is_retryable),
            _ => false,
        }
    }

    /// Returns the delay that the server requests before the next attempt.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.api_error()?.retry.after
    }

    /// Returns the HTTP status of an error response.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match &self.0.cause {
            Cause::Redirected(status, _) => Some(status.as_u16()),
            _ => self.api_error()?.status.map(|status| status.as_u16()),
        }
    }

    /// Returns the body of a response that reports an error, up to 64 KiB. `Display` shows one line of it.
    #[must_use]
    pub fn body(&self) -> Option<&str> {
        self.0.body.as_deref()
    }

    /// Returns the API's whole error message.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        self.api_error().map(|error| &*error.message)
    }

    /// Returns the API's error code, such as `enforced_spend_limit_reached`, which few errors have.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.api_error()?.code.as_deref()
    }

    /// Returns the API's error type, such as `invalid_request_error`.
    #[must_use]
    pub fn error_type(&self) -> Option<&str> {
        self.api_error()?.error_type.as_deref()
    }

    /// Returns the id of the request, for the provider's support. Every error that came with a response has it if the server
    /// sends one.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.0.request_id.as_deref()
    }

    /// Returns the part of the response that arrived before a stream failed.
    #[must_use]
    pub fn partial(&self) -> Option<&ChatResponse> {
        self.0.partial.as_ref()
    }

    fn api_error(&self) -> Option<&ApiError> {
        match &self.0.cause {
            Cause::Api(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let request = self.0.request.as_deref().unwrap_or("the request");
        let url = request.rsplit(' ').next().unwrap_or_default();
        match &self.0.cause {
            Cause::Config(message) | Cause::Request(message) => f.write_str(message),
            Cause::InvalidResponse(message) => write!(f, "{request}: {message}"),
            Cause::Transport(error) if error.is_timeout() => write!(f, "{request} timed out"),
            Cause::Transport(error) if error.is_connect() => {
                write!(f, "could not connect to {url}: {}", root_cause(error))
            }
            Cause::Transport(_) => write!(f, "the connection to {url} failed"),
            Cause::Api(error) => {
                write!(f, "{request} failed")?;
                if let Some(status) = &error.status {
                    write!(f, " with status {}", status.as_u16())?;
                }
                if let Some(name) = error_name(error.code.as_deref(), error.error_type.as_deref()) {
                    write!(f, ", {}", excerpt(name, MAX_MESSAGE_CHARS))?;
                }
                write!(f, ": {}", excerpt(&error.message, MAX_MESSAGE_CHARS))?;
                let is_unexplained = error.error_type.is_none() && error.code.is_none();
                if is_unexplained && error.status.is_some_and(|status| matches!(status.as_u16(), 404 | 405)) {
                    f.write_str("; check the base URL")?;
                }
                if error.lacks_key && classify(error) == ErrorKind::Authentication {
                    f.write_str("; no key was sent, set one with `api_key` or `api_key_from_env`")?;
                }
                Ok(())
            }
            Cause::Redirected(status, location) => {
                let status = status.as_u16();
                write!(f, "{request} is redirected to {location} (status {status}); use that as the base URL")
            }
            Cause::Incomplete(_) => write!(f, "{request}: the stream ended before the response was complete"),
        }?;
        match self.request_id() {
            Some(id) => write!(f, " (request {id})"),
            None => Ok(()),
        }
    }
}

/// Writes the text and the sources, so that a `main` that returns the error prints it in a readable form.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut source = self.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.0.cause {
            // `Display` includes the cause.
            Cause::Transport(_) if self.kind() == ErrorKind::Connect => None,
            Cause::Transport(error) => Some(error),
            Cause::Incomplete(Some(cause)) => Some(cause),
            _ => None,
        }
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

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::config(error.0)
    }
}

impl From<FieldError> for Error {
    fn from(error: FieldError) -> Self {
        Self::request(error.0)
    }
}

impl From<Error> for ModelError {
    fn from(error: Error) -> Self {
        let (kind, is_unbilled) = (error.kind(), error.is_unbilled());
        kind.model_error(error, is_unbilled)
    }
}
