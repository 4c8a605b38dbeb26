//! What can go wrong between here and the endpoint.

use std::error::Error as StdError;
use std::fmt;

use reqwest::{StatusCode, Url};
use tool_core::{ChatResponse, ModelError};

use crate::client::shown;
use crate::quirks;

/// How much of an answer that cannot be read is shown, in characters.
const LONGEST_EXCERPT: usize = 120;

/// Why the endpoint gave no response. Neither its text nor its `Debug` holds the key or a header.
pub struct Error(Box<Kind>);

enum Kind {
    Config(String),
    Transport { url: String, error: reqwest::Error },
    Api(ApiError),
    Redirected { status: StatusCode, location: String },
    InvalidResponse(String),
    Incomplete { partial: ChatResponse, why: Option<Error> },
}

/// What the API says of an error.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) status: Option<StatusCode>,
    pub(crate) message: String,
    pub(crate) kind: Option<String>,
    pub(crate) code: Option<String>,
    pub(crate) request_id: Option<String>,
}

impl Error {
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self(Box::new(Kind::Config(message.into())))
    }

    pub(crate) fn transport(url: &Url, error: reqwest::Error) -> Self {
        Self(Box::new(Kind::Transport { url: shown(url), error: error.without_url() }))
    }

    /// An error by the status of the answer, or by its body under any status. `clean` takes the key out of a text.
    pub(crate) fn api(
        status: Option<StatusCode>,
        body: &str,
        request_id: Option<String>,
        clean: impl Fn(&str) -> String,
    ) -> Self {
        let told = quirks::api_error(body).unwrap_or_else(|| ApiError {
            message: format!("it says: {}", excerpt(body)),
            ..ApiError::default()
        });
        // The body is read first, because in JSON the key may be written with escapes.
        Self(Box::new(Kind::Api(ApiError {
            message: clean(&told.message),
            kind: told.kind.as_deref().map(&clean),
            code: told.code.as_deref().map(&clean),
            status,
            request_id,
        })))
    }

    pub(crate) fn redirected(status: StatusCode, location: &str) -> Self {
        Self(Box::new(Kind::Redirected { status, location: excerpt(location) }))
    }

    pub(crate) fn invalid_response(message: impl Into<String>) -> Self {
        Self(Box::new(Kind::InvalidResponse(message.into())))
    }

    /// An answer that is no response of the API.
    pub(crate) fn unreadable(content_type: Option<&str>, body: &str, why: &dyn fmt::Display) -> Self {
        let content_type = content_type.unwrap_or("no content type");
        Self::invalid_response(format!(
            "the answer is not one of the API ({content_type}: {why}); is the base URL right? It begins: {}",
            excerpt(body)
        ))
    }

    pub(crate) fn incomplete(partial: ChatResponse, why: Option<Self>) -> Self {
        Self(Box::new(Kind::Incomplete { partial, why }))
    }

    /// The endpoint cannot be used as it is set.
    #[must_use]
    pub fn is_config(&self) -> bool {
        matches!(*self.0, Kind::Config(_))
    }

    /// The endpoint could not be reached.
    #[must_use]
    pub fn is_connect(&self) -> bool {
        matches!(&*self.0, Kind::Transport { error, .. } if error.is_connect())
    }

    /// The endpoint took too long.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        match &*self.0 {
            Kind::Transport { error, .. } => error.is_timeout(),
            Kind::Incomplete { why: Some(why), .. } => why.is_timeout(),
            _ => false,
        }
    }

    /// The API refused the request or failed: see [`status`](Self::status), [`code`](Self::code) and
    /// [`message`](Self::message).
    #[must_use]
    pub fn is_api(&self) -> bool {
        matches!(*self.0, Kind::Api(_))
    }

    /// The answer is not one of the API.
    #[must_use]
    pub fn is_invalid_response(&self) -> bool {
        matches!(*self.0, Kind::InvalidResponse(_) | Kind::Redirected { .. })
    }

    /// The stream ended before the response was whole: see [`partial`](Self::partial).
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        matches!(*self.0, Kind::Incomplete { .. })
    }

    /// The HTTP status, if the error is the API's and came with one.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match &*self.0 {
            Kind::Redirected { status, .. } => Some(status.as_u16()),
            _ => self.api_error()?.status.map(|status| status.as_u16()),
        }
    }

    /// The API's code, such as `invalid_api_key`.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.api_error()?.code.as_deref()
    }

    /// The API's type of the error, such as `invalid_request_error`.
    #[must_use]
    pub fn error_type(&self) -> Option<&str> {
        self.api_error()?.kind.as_deref()
    }

    /// The API's message.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        self.api_error().map(|error| &*error.message)
    }

    /// The API's name for the request, for its support.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.api_error()?.request_id.as_deref()
    }

    /// What came before the stream broke off.
    #[must_use]
    pub fn partial(&self) -> Option<&ChatResponse> {
        match &*self.0 {
            Kind::Incomplete { partial, .. } => Some(partial),
            _ => None,
        }
    }

    fn api_error(&self) -> Option<&ApiError> {
        match &*self.0 {
            Kind::Api(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Config(message) => f.write_str(message),
            Kind::Transport { url, error } if error.is_timeout() => write!(f, "{url} took too long"),
            Kind::Transport { url, error } if error.is_connect() => write!(f, "could not connect to {url}"),
            Kind::Transport { url, .. } => write!(f, "the connection to {url} broke"),
            Kind::Api(error) => write!(f, "{error}"),
            Kind::Redirected { status, location } => {
                write!(
                    f,
                    "the endpoint redirects to {location} (status {}); set the base URL to that",
                    status.as_u16()
                )
            }
            Kind::InvalidResponse(message) => f.write_str(message),
            Kind::Incomplete { .. } => f.write_str("the stream ended before the response was whole"),
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the API answered with an error")?;
        if let Some(status) = &self.status {
            write!(f, ", status {}", status.as_u16())?;
        }
        if let Some(code) = self.code.as_ref().or(self.kind.as_ref()) {
            write!(f, ", {code}")?;
        }
        write!(f, ": {}", self.message)?;
        match &self.request_id {
            Some(id) => write!(f, " (request {id})"),
            None => Ok(()),
        }
    }
}

/// The text and the sources, so that a `main` that returns the error shows it readably.
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
        match &*self.0 {
            Kind::Transport { error, .. } => Some(error),
            Kind::Incomplete { why: Some(why), .. } => Some(why),
            _ => None,
        }
    }
}

impl From<Error> for ModelError {
    fn from(error: Error) -> Self {
        Self::new(error)
    }
}

/// The beginning of a text, on one line.
fn excerpt(text: &str) -> String {
    let mut words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.is_empty() {
        return "nothing".into();
    }
    if let Some((end, _)) = words.char_indices().nth(LONGEST_EXCERPT) {
        words.truncate(end);
        words.push('…');
    }
    words
}
