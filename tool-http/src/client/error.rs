//! Errors of endpoints of models.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{StatusCode, Url};
use tool_core::model::{ChatResponse, ModelError};
use tool_core::{RunError, RunErrorKind};

use super::connect::sources;
use super::error_body::{ErrorBody, MAX_EXCERPT_CHARS, MAX_MESSAGE_CHARS, excerpt};
use super::error_kind::{ErrorKind, ErrorKinds};
use super::redact::{Redactor, redact_url};
use super::retry_headers::RetryHeaders;
use super::token_source::TokenFailure;

/// The number of characters of a web page that are stored.
const MAX_HTML_CHARS: usize = 64 << 10;

/// An error of the endpoint of a model. `Display` is one line with the request, the status, what the server sent, and the id of the
/// request. Neither it nor the `Debug` output contains the key.
///
/// It is the same type for all providers. A [`ChatModel`](tool_core::ChatModel) returns a [`ModelError`] that wraps it.
/// [`Error::find_in`] returns it from the [`RunError`] of a run that it ended:
///
/// ```
/// use tool_core::RunError;
/// use tool_http::client::{Error, ErrorKind};
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
    /// The request that failed, once it is known.
    request: Option<FailedRequest>,
    request_id: Option<String>,
    /// The body of the response, without secrets.
    body: Option<String>,
    /// The way out that the client of the API knows.
    hint: Option<&'static str>,
    /// The error of the source of tokens, which may contain secrets and is not shown.
    token_error: Option<Arc<dyn StdError + Send + Sync>>,
    /// The response so far, if a stream failed.
    partial: Option<ChatResponse>,
}

enum Cause {
    Config(String),
    /// There is no token to send.
    Token(&'static str),
    Request(String),
    TooLong(String),
    Transport(reqwest::Error),
    Api(Box<ApiError>),
    /// A web page with this start, in place of a response.
    Html(String),
    Redirected(StatusCode, String),
    InvalidResponse(String),
    Empty,
    Incomplete(Option<Error>),
}

/// An error that the server reports.
struct ApiError {
    head: ResponseHead,
    body: ErrorBody,
    /// The body is a web page, and the message its start.
    is_html: bool,
}

/// A request that failed, described without secrets.
#[derive(Clone, Debug)]
pub(super) struct FailedRequest {
    method: &'static str,
    url: String,
    /// The base URL that is suggested if the server does not know this one.
    suggested_base_url: Option<String>,
}

/// What is known of a response besides its body.
#[derive(Clone, Debug, Default)]
pub(super) struct ResponseHead {
    pub(super) status: Option<StatusCode>,
    pub(super) content_type: Option<String>,
    pub(super) retry: RetryHeaders,
    /// The request was sent without a key.
    pub(super) lacks_key: bool,
    pub(super) known_errors: ErrorKinds,
}

impl FailedRequest {
    pub(super) fn new(method: &'static str, url: &Url, suggested_base_url: Option<String>) -> Self {
        Self { method, url: redact_url(url), suggested_base_url }
    }
}

impl Error {
    fn new(cause: Cause) -> Self {
        let (request, request_id, body, hint, token_error, partial) = (None, None, None, None, None, None);
        Self(Box::new(Inner { cause, request, request_id, body, hint, token_error, partial }))
    }

    /// Creates an error of the kind [`ErrorKind::Config`].
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(Cause::Config(message.into()))
    }

    /// Creates an error for a request without a token.
    pub(super) fn token(failure: TokenFailure) -> Self {
        let mut error = Self::new(Cause::Token(failure.message));
        error.0.token_error = failure.cause;
        error
    }

    /// Adds why the token that the server refused was not replaced.
    pub(super) fn with_token_failure(mut self, failure: TokenFailure) -> Self {
        self.0.token_error = failure.cause;
        self.with_hint(failure.message)
    }

    /// Creates an error for a request that cannot be sent, of the kind [`ErrorKind::InvalidRequest`].
    pub fn request(message: impl Into<String>) -> Self {
        Self::new(Cause::Request(message.into()))
    }

    /// Creates an error for a request that is too long to be sent, of the kind [`ErrorKind::ContextLength`].
    pub fn too_long(message: impl Into<String>) -> Self {
        Self::new(Cause::TooLong(message.into()))
    }

    /// Creates an error for a response that cannot be used, of the kind [`ErrorKind::InvalidResponse`].
    pub fn invalid_response(message: impl Into<String>) -> Self {
        Self::new(Cause::InvalidResponse(message.into()))
    }

    pub(super) fn transport(error: reqwest::Error) -> Self {
        Self::new(Cause::Transport(error.without_url()))
    }

    /// Creates an error for a response that reports one.
    pub(super) fn api(body: &str, head: ResponseHead, redactor: &Redactor) -> Self {
        // Redacted before it is truncated, because part of a key would not be found.
        let redacted_body = redactor.redact(body);
        let (body, is_html) = match ErrorBody::parse(body) {
            // The parsed texts are redacted, because the key may contain escapes in the JSON.
            Some(body) => (body.redacted(redactor), false),
            None => {
                let is_html = is_html(head.content_type.as_deref(), body);
                let message = match excerpt(&redacted_body, MAX_EXCERPT_CHARS).as_str() {
                    "" => "the response body is empty".to_owned(),
                    excerpt if is_html => format!("`{excerpt}`"),
                    excerpt => format!("unexpected text `{excerpt}`"),
                };
                (ErrorBody::new(message), is_html)
            }
        };
        let request_id = body.request_id().map(str::to_owned);
        let mut error = Self::new(Cause::Api(ApiError { head, body, is_html }.into()));
        (error.0.body, error.0.request_id) = (Some(redacted_body), request_id);
        error
    }

    /// Creates an error for a reply that the provider aborted.
    pub(super) fn aborted(reason: String, known_errors: ErrorKinds) -> Self {
        let (head, body) = (ResponseHead { known_errors, ..ResponseHead::default() }, ErrorBody::new(reason));
        Self::new(Cause::Api(ApiError { head, body, is_html: false }.into()))
    }

    pub(super) fn redirected(status: StatusCode, location: &str) -> Self {
        Self::new(Cause::Redirected(status, excerpt(location, MAX_EXCERPT_CHARS)))
    }

    /// Creates an error for a body, or the data of an event, that does not follow the API, for this reason. Neither contains secrets.
    pub(super) fn malformed(content_type: Option<&str>, body: &str, reason: &str) -> Self {
        let start = excerpt(body, MAX_EXCERPT_CHARS);
        if is_html(content_type, body) {
            let mut error = Self::new(Cause::Html(start));
            error.0.body = Some(body.chars().take(MAX_HTML_CHARS).collect());
            return error;
        }
        let content_type = content_type.unwrap_or("no content type");
        // What may be a model's reply is not quoted.
        let is_reply =
            content_type.starts_with("text/event-stream") || body.trim_start().starts_with(['{', '[']);
        let start = match &*start {
            "" => "it is empty".to_owned(),
            _ if is_reply => format!("it has {} bytes", body.len()),
            start => format!("it starts with `{start}`"),
        };
        let reason = excerpt(&format!("{content_type}: {reason}"), MAX_MESSAGE_CHARS);
        Self::invalid_response(format!(
            "the response does not follow the API ({reason}); check the base URL; {start}"
        ))
    }

    /// Creates an error for a response that follows the API but contains no reply.
    pub(super) fn empty() -> Self {
        Self::new(Cause::Empty)
    }

    /// Creates an error for a stream that ended too early, with the cause if it is known.
    pub fn incomplete(cause: Option<Self>) -> Self {
        Self::new(Cause::Incomplete(cause))
    }

    /// Adds the request that failed, and its id, unless they are known.
    pub(super) fn with_request(mut self, request: &FailedRequest, id: Option<&str>) -> Self {
        self.0.request.get_or_insert_with(|| request.clone());
        self.0.request_id = self.0.request_id.or_else(|| id.map(str::to_owned));
        self
    }

    /// Adds the part of the response that arrived before the error.
    pub(super) fn with_partial(mut self, partial: ChatResponse) -> Self {
        self.0.partial = Some(partial);
        self
    }

    /// Adds the way out to the message of the server.
    #[must_use]
    pub fn with_hint(mut self, hint: &'static str) -> Self {
        self.0.hint = Some(hint);
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
            Cause::TooLong(_) => ErrorKind::ContextLength,
            Cause::Transport(error) if error.is_timeout() => ErrorKind::Timeout,
            Cause::Transport(error) if error.is_connect() => ErrorKind::Connect,
            Cause::Transport(_) => ErrorKind::Transport,
            Cause::Api(error) => error.kind(),
            Cause::Token(_) => ErrorKind::Authentication,
            Cause::Html(_) | Cause::Redirected(..) | Cause::InvalidResponse(_) => ErrorKind::InvalidResponse,
            Cause::Empty => ErrorKind::Server,
            Cause::Incomplete(_) => ErrorKind::Incomplete,
        }
    }

    /// Returns `true` if the request certainly costs nothing: it was not sent or was rejected.
    pub(super) fn is_unbilled(&self) -> bool {
        match self.kind() {
            ErrorKind::Config | ErrorKind::Connect => true,
            // The model wrote the call.
            ErrorKind::MalformedToolCall => false,
            _ => match &self.0.cause {
                Cause::Token(_) | Cause::Request(_) | Cause::TooLong(_) => true,
                _ => self.0.partial.is_none() && self.status().is_some_and(ErrorKind::is_rejection),
            },
        }
    }

    /// Returns `true` if the server refused the token of the request.
    pub(super) fn refuses_token(&self) -> bool {
        let Some(error) = self.api_error() else { return false };
        let message = error.body.message.to_lowercase();
        let is_expired = |part: &&str| message.contains(part);
        match error.status() {
            Some(401) => true,
            Some(403) => error.head.known_errors.expired_tokens.iter().any(is_expired),
            _ => false,
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
    /// is overloaded. Requests are retried as often as the builder of the endpoint allows before such an error is returned, except
    /// streams that have started.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match &self.0.cause {
            Cause::Transport(error) => !error.is_builder() && !error.is_redirect(),
            Cause::Api(error) => error.head.retry.allow_retry_after(error.kind()),
            Cause::Empty => true,
            Cause::Incomplete(cause) => cause.as_ref().is_none_or(Self::is_retryable),
            _ => false,
        }
    }

    /// Returns the delay that the server requests before the next attempt.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.api_error()?.head.retry.after
    }

    /// Returns the HTTP status of an error response.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match &self.0.cause {
            Cause::Redirected(status, _) => Some(status.as_u16()),
            _ => self.api_error()?.status(),
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
        self.api_error().map(|error| &*error.body.message)
    }

    /// Returns the API's error code, such as `invalid_api_key`.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.api_error()?.body.code.as_deref()
    }

    /// Returns the API's error type, such as `invalid_request_error`.
    #[must_use]
    pub fn error_type(&self) -> Option<&str> {
        self.api_error()?.body.error_type.as_deref()
    }

    /// Returns the field of the request that the API rejected, if the API names it.
    #[must_use]
    pub fn param(&self) -> Option<&str> {
        self.api_error()?.body.text("/param")
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
        self.api_error()?.body.text("/failed_generation")
    }

    /// Returns the error of the source of tokens, if it failed. Its text may contain secrets, so it is neither displayed nor a source of
    /// this error.
    #[must_use]
    pub fn token_error(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.0.token_error.as_deref()
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

impl ApiError {
    fn status(&self) -> Option<u16> {
        self.head.status.map(|status| status.as_u16())
    }

    fn kind(&self) -> ErrorKind {
        self.body.kind(self.status(), &self.head.known_errors)
    }

    /// Writes the error, and the way out if one is known.
    fn write(
        &self,
        f: &mut fmt::Formatter<'_>,
        hint: Option<&str>,
        suggested_base_url: Option<&str>,
    ) -> fmt::Result {
        f.write_str(if self.is_html { " answered with HTML" } else { " failed" })?;
        if let Some(status) = self.status() {
            write!(f, " with status {status}")?;
        }
        if let Some(name) = self.body.name() {
            write!(f, ", {}", excerpt(name, MAX_MESSAGE_CHARS))?;
        }
        write!(f, ": {}", excerpt(&self.body.message, MAX_MESSAGE_CHARS))?;
        if self.head.lacks_key && self.kind() == ErrorKind::Authentication {
            return f.write_str(
                "; no key was sent, set one with `api_key`, `api_key_from_env` or `token_source`",
            );
        }
        if let Some(hint) = hint {
            write!(f, "; {hint}")?;
        }
        // The API sends a code or a type if a model is missing; a server without this path mostly does not.
        let is_unexplained = self.body.name().is_none();
        let is_known = |code: &String| self.head.known_errors.by_name(code).is_some();
        let may_lack_version = suggested_base_url.is_some() && !self.body.code.as_ref().is_some_and(is_known);
        match self.status() {
            Some(404 | 405) if is_unexplained || may_lack_version => {
                write_base_url_hint(f, suggested_base_url)
            }
            _ => Ok(()),
        }
    }
}

fn write_base_url_hint(f: &mut fmt::Formatter<'_>, suggested: Option<&str>) -> fmt::Result {
    f.write_str("; check the base URL")?;
    match suggested {
        Some(url) => write!(f, ", did you mean `{url}`?"),
        None => Ok(()),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.0.request.as_ref();
        let request = known.map(|known| format!("{} {}", known.method, known.url));
        let request = request.as_deref().unwrap_or("the request");
        let url = known.map_or("the server", |known| &*known.url);
        let suggested_base_url = known.and_then(|known| known.suggested_base_url.as_deref());
        match &self.0.cause {
            Cause::Config(message) | Cause::Request(message) | Cause::TooLong(message) => {
                f.write_str(message)
            }
            Cause::Token(message) => f.write_str(message),
            Cause::Transport(error) if error.is_timeout() => write!(f, "{request} timed out"),
            Cause::Transport(error) if error.is_connect() => {
                write!(f, "could not connect to {url}: {}", sources(error).last().unwrap_or(error))
            }
            Cause::Transport(_) => write!(f, "the connection to {url} failed"),
            Cause::Api(error) => {
                f.write_str(request)?;
                error.write(f, self.0.hint, suggested_base_url)
            }
            Cause::Html(excerpt) => {
                write!(f, "{request} answered with HTML: `{excerpt}`")?;
                write_base_url_hint(f, suggested_base_url)
            }
            Cause::Redirected(status, location) => {
                let status = status.as_u16();
                write!(f, "{request} is redirected to {location} (status {status}); use that as the base URL")
            }
            Cause::InvalidResponse(message) => write!(f, "{request}: {message}"),
            Cause::Empty => write!(f, "{request}: the response contains no reply"),
            Cause::Incomplete(_) => write!(f, "{request}: the stream ended before the response was complete"),
        }?;
        match self.request_id() {
            Some(id) => write!(f, " (request {})", excerpt(id, MAX_EXCERPT_CHARS)),
            None => Ok(()),
        }
    }
}

/// Writes the text and the sources, so that a `main` that returns the error prints it in a readable form.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = sources(self).map(ToString::to_string).collect();
        f.write_str(&texts.join(": "))
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

impl From<Error> for ModelError {
    fn from(error: Error) -> Self {
        let (kind, is_unbilled) = (error.kind(), error.is_unbilled());
        let error = Self::new(error).with_kind(kind.into());
        let error = if is_unbilled { error.unbilled() } else { error };
        if kind.is_permanent() { error.permanent() } else { error }
    }
}

fn is_html(content_type: Option<&str>, body: &str) -> bool {
    let starts_with = |start: &str| {
        let body = body.trim_start().as_bytes();
        body.get(..start.len()).is_some_and(|body| body.eq_ignore_ascii_case(start.as_bytes()))
    };
    content_type.is_some_and(|value| value.starts_with("text/html"))
        || starts_with("<!doctype html")
        || starts_with("<html")
}
