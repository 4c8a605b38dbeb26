//! Errors of endpoints.

mod api;

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use reqwest::{StatusCode, Url};
use tool_core::model::{ChatResponse, ModelError};
use tool_core::{RunError, RunErrorKind};
pub use tool_http::client::ErrorKind;
use tool_http::client::{
    ConfigError, FieldError, MAX_EXCERPT_CHARS, RetryHeaders, excerpt, malformed_body, redact_url, root_cause,
};

use self::api::{ApiError, write_base_url_hint};
pub(crate) use self::api::{is_error_body, is_error_value};

/// The number of characters of a web page that are stored.
const MAX_HTML_CHARS: usize = 64 << 10;

/// An error of an endpoint. `Display` is one line with the request, the status and what the server sent. Neither it nor the
/// `Debug` output contains a key or a header of 16 bytes or more.
///
/// A [`ChatModel`](tool_core::ChatModel) returns a [`ModelError`] that wraps this error. [`Error::find_in`] returns it from
/// the [`RunError`](tool_core::RunError) of a run that it ended:
///
/// ```
/// use tool_core::RunError;
/// use tool_openai::{Error, ErrorKind};
///
/// fn advice(error: &RunError) -> String {
///     let Some(error) = Error::find_in(error) else { return "not an error of the endpoint".into() };
///     match error.kind() {
///         ErrorKind::ContextLength => "ask with less history".into(),
///         ErrorKind::Quota => "pay the bill".into(), // also status 429, but waiting does not help
///         ErrorKind::Authentication => "check the key".into(),
///         // The request was already retried `max_retries` times.
///         _ if error.is_retryable() => format!("ask again in {:?}", error.retry_after().unwrap_or_default()),
///         _ => format!("contact the provider about request {:?}", error.request_id()),
///     }
/// }
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    cause: Cause,
    /// The request that failed, once it is known.
    request: Option<FailedRequest>,
    request_id: Option<String>,
    /// The body of the response, without secrets.
    body: Option<String>,
    /// A JSON schema for the reply was sent to a server that may not support it.
    sent_json_schema: bool,
    /// The response so far, if a stream failed.
    partial: Option<ChatResponse>,
}

enum Cause {
    Config(String),
    Request(String),
    Transport {
        url: String,
        error: reqwest::Error,
    },
    Api(ApiError),
    /// A web page with a status that reports success. Carries its start.
    Html(String),
    Redirected {
        status: StatusCode,
        location: String,
    },
    InvalidResponse(String),
    Empty,
    Incomplete {
        cause: Option<Error>,
    },
}

/// A request whose error is reported.
#[derive(Clone, Debug)]
pub(crate) struct FailedRequest {
    /// Without user info and query.
    pub(crate) url: String,
    /// The base URL with the version that the configured one lacks.
    pub(crate) versioned_base_url: Option<String>,
}

/// The circumstances of an error response, besides its body.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResponseContext {
    pub(crate) status: Option<StatusCode>,
    pub(crate) content_type: Option<String>,
    pub(crate) retry: RetryHeaders,
    pub(crate) lacks_key: bool,
}

impl Error {
    fn new(cause: Cause) -> Self {
        Self(Box::new(Inner {
            cause,
            request: None,
            request_id: None,
            body: None,
            sent_json_schema: false,
            partial: None,
        }))
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(Cause::Config(message.into()))
    }

    /// Creates an error for a request that cannot be sent.
    pub(crate) fn request(message: impl Into<String>) -> Self {
        Self::new(Cause::Request(message.into()))
    }

    pub(crate) fn transport(url: &Url, error: reqwest::Error) -> Self {
        Self::new(Cause::Transport { url: redact_url(url), error: error.without_url() })
    }

    /// Creates an error for a response that reports one by its status or its body. `redact` removes secrets from a text.
    pub(crate) fn api(body: &str, context: ResponseContext, redact: impl Fn(&str) -> String) -> Self {
        // Redacted before it is truncated, because part of a key would not be found.
        let redacted_body = redact(body);
        let error = ApiError::parse(body).unwrap_or_else(|| {
            let is_html = is_html(context.content_type.as_deref(), body);
            let message = match excerpt(&redacted_body, MAX_EXCERPT_CHARS).as_str() {
                "" => "the response body is empty".to_owned(),
                excerpt if is_html => format!("`{excerpt}`"),
                excerpt => format!("unexpected text `{excerpt}`"),
            };
            ApiError { message, is_html, ..ApiError::default() }
        });
        // The parsed texts are redacted, because the key may contain escapes in the JSON.
        let redact_option = |text: Option<String>| text.as_deref().map(&redact);
        let mut error = Self::new(Cause::Api(ApiError {
            message: redact(&error.message),
            is_html: error.is_html,
            error_type: redact_option(error.error_type),
            code: redact_option(error.code),
            param: redact_option(error.param),
            failed_generation: redact_option(error.failed_generation),
            status: context.status,
            retry: context.retry,
            lacks_key: context.lacks_key,
        }));
        error.0.body = Some(redacted_body);
        error
    }

    /// Adds the request that failed, and its id.
    pub(crate) fn with_request(mut self, request: FailedRequest, id: Option<String>) -> Self {
        self.0.request.get_or_insert(request);
        self.0.request_id = self.0.request_id.or(id);
        self
    }

    /// Records whether a JSON schema for the reply was sent to a server that may not support it.
    pub(crate) fn with_json_schema_sent(mut self, is_sent: bool) -> Self {
        self.0.sent_json_schema = is_sent;
        self
    }

    pub(crate) fn redirected(status: StatusCode, location: &str) -> Self {
        Self::new(Cause::Redirected { status, location: excerpt(location, MAX_EXCERPT_CHARS) })
    }

    pub(crate) fn invalid_response(message: impl Into<String>) -> Self {
        Self::new(Cause::InvalidResponse(message.into()))
    }

    /// Creates an error for a body that does not follow the API.
    pub(crate) fn malformed(content_type: Option<&str>, body: &str, reason: &dyn fmt::Display) -> Self {
        if is_html(content_type, body) {
            let mut error = Self::new(Cause::Html(excerpt(body, MAX_EXCERPT_CHARS)));
            error.0.body = Some(body.chars().take(MAX_HTML_CHARS).collect());
            return error;
        }
        let content_type = content_type.unwrap_or("no content type");
        let reason = format!("{content_type}: {reason}");
        Self::invalid_response(malformed_body(&reason, body, content_type == "text/event-stream"))
    }

    /// Creates an error for a stream that ended too early.
    pub(crate) fn incomplete(cause: Option<Self>) -> Self {
        Self::new(Cause::Incomplete { cause })
    }

    pub(crate) fn with_partial(mut self, partial: ChatResponse) -> Self {
        self.0.partial = Some(partial);
        self
    }

    /// Creates an error for a reply that the provider aborted.
    pub(crate) fn aborted(reason: String) -> Self {
        Self::new(Cause::Api(ApiError { message: reason, ..ApiError::default() }))
    }

    /// Creates an error for a response that contains no reply.
    pub(crate) fn empty() -> Self {
        Self::new(Cause::Empty)
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
            Cause::Transport { error, .. } if error.is_timeout() => ErrorKind::Timeout,
            Cause::Transport { error, .. } if error.is_connect() => ErrorKind::Connect,
            Cause::Transport { .. } => ErrorKind::Transport,
            Cause::Api(error) => error.kind(),
            Cause::Redirected { .. } | Cause::Html(_) | Cause::InvalidResponse(_) => {
                ErrorKind::InvalidResponse
            }
            Cause::Empty => ErrorKind::Server,
            Cause::Incomplete { .. } => ErrorKind::Incomplete,
        }
    }

    /// Returns `true` if the request certainly costs nothing: it was not sent or was rejected.
    pub(crate) fn is_unbilled(&self) -> bool {
        match self.kind() {
            ErrorKind::Config | ErrorKind::Connect => true,
            ErrorKind::MalformedToolCall => false,
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
            Cause::Incomplete { cause: Some(cause) } => cause.is_timeout(),
            _ => self.kind() == ErrorKind::Timeout,
        }
    }

    /// Returns `true` if the same request may succeed if it is sent again: the connection failed, or the server failed or
    /// is overloaded. Requests are [retried](crate::OpenAiBuilder::max_retries) before such an error is returned, except
    /// streams that have started.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match &self.0.cause {
            Cause::Transport { error, .. } => !error.is_builder() && !error.is_redirect(),
            Cause::Api(error) => error.retry.allow_retry_after(error.kind()),
            Cause::Empty => true,
            Cause::Incomplete { cause } => cause.as_ref().is_none_or(Self::is_retryable),
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
            Cause::Redirected { status, .. } => Some(status.as_u16()),
            _ => self.api_error()?.status.map(|status| status.as_u16()),
        }
    }

    /// Returns the body of a response that reports an error or is a web page, up to 64 KiB. `Display` shows one line of it.
    #[must_use]
    pub fn body(&self) -> Option<&str> {
        self.0.body.as_deref()
    }

    /// Returns the API's whole error message.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        self.api_error().map(|error| &*error.message)
    }

    /// Returns the API's error code, such as `invalid_api_key`.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.api_error()?.code.as_deref()
    }

    /// Returns the API's error type, such as `invalid_request_error`.
    #[must_use]
    pub fn error_type(&self) -> Option<&str> {
        self.api_error()?.error_type.as_deref()
    }

    /// Returns the field of the request that the API rejected.
    #[must_use]
    pub fn param(&self) -> Option<&str> {
        self.api_error()?.param.as_deref()
    }

    /// Returns the id of the request, for the provider's support. Every error that came with a response has it if the server
    /// sends one.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.0.request_id.as_deref()
    }

    /// Returns the text that the model wrote instead of a valid tool call, if the server sends it: see
    /// [`ErrorKind::MalformedToolCall`].
    #[must_use]
    pub fn failed_generation(&self) -> Option<&str> {
        self.api_error()?.failed_generation.as_deref()
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
        let request = self.0.request.as_ref();
        let has_request =
            !matches!(self.0.cause, Cause::Config(_) | Cause::Request(_) | Cause::Transport { .. });
        match request.filter(|_| has_request) {
            Some(request) => write!(f, "POST {}", request.url)?,
            None if has_request => f.write_str("the request")?,
            None => {}
        }
        let base_url = request.and_then(|request| request.versioned_base_url.as_deref());
        match &self.0.cause {
            Cause::Config(message) | Cause::Request(message) => f.write_str(message),
            Cause::InvalidResponse(message) => write!(f, ": {message}"),
            Cause::Transport { url, error } if error.is_timeout() => write!(f, "POST {url} timed out"),
            Cause::Transport { url, error } if error.is_connect() => {
                write!(f, "could not connect to {url}: {}", root_cause(error))
            }
            Cause::Transport { url, .. } => write!(f, "the connection to {url} failed"),
            Cause::Api(error) => error.write(f, base_url, self.0.sent_json_schema),
            Cause::Html(excerpt) => {
                write!(f, " answered with HTML: `{excerpt}`")?;
                write_base_url_hint(f, base_url)
            }
            Cause::Redirected { status, location } => {
                let status = status.as_u16();
                write!(f, " is redirected to {location} (status {status}); use that as the base URL")
            }
            Cause::Empty => f.write_str(": the response contains no reply"),
            Cause::Incomplete { .. } => f.write_str(": the stream ended before the response was complete"),
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
            Cause::Transport { .. } if self.kind() == ErrorKind::Connect => None,
            Cause::Transport { error, .. } => Some(error),
            Cause::Incomplete { cause: Some(cause) } => Some(cause),
            _ => None,
        }
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

/// Returns `true` if a body is a web page.
fn is_html(content_type: Option<&str>, body: &str) -> bool {
    let starts_with = |start: &str| {
        let body = body.trim_start().as_bytes();
        body.get(..start.len()).is_some_and(|body| body.eq_ignore_ascii_case(start.as_bytes()))
    };
    content_type.is_some_and(|value| value.starts_with("text/html"))
        || starts_with("<!doctype html")
        || starts_with("<html")
}
