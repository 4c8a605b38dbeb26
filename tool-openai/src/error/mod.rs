//! What can go wrong between here and the endpoint.

mod class;
mod queries;

use std::error::Error as StdError;
use std::fmt;

use reqwest::{StatusCode, Url};
use tool_core::{ChatResponse, ModelError};

use self::class::Class;
use crate::client::{shown, without_query};
use crate::quirks;
use crate::retry::RetryHeaders;

/// How much of an answer that cannot be read is shown, in characters.
const LONGEST_EXCERPT: usize = 120;

/// Why the endpoint gave no response. Neither its text nor its `Debug` holds the key or a header.
///
/// What [`ChatModel`](tool_core::ChatModel) gives is a [`ModelError`], which has this error inside; a run that it ended gives a
/// [`RunError`](tool_core::RunError) that leads [to it](Self::of):
///
/// ```
/// use tool_core::RunError;
///
/// fn advice(error: &RunError) -> String {
///     let Some(error) = tool_openai::Error::of(error) else { return "it was not the endpoint".into() };
///     match error {
///         error if error.is_context_length() => "ask with less history".into(),
///         error if error.is_quota() => "pay the bill".into(), // also a 429, and no time to wait helps
///         error if error.is_authentication() => "look at the key".into(),
///         // What is retried was so already, as often as `max_retries` says.
///         error if error.is_retryable() => format!("ask again, in {:?}", error.retry_after().unwrap_or_default()),
///         error => format!("tell the provider of request {:?}", error.request_id()),
///     }
/// }
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: Kind,
    request_id: Option<String>,
    /// What came before it, of a stream.
    partial: Option<ChatResponse>,
}

enum Kind {
    Config(String),
    Request(String),
    Transport { url: String, error: reqwest::Error },
    Api(ApiError),
    Redirected { status: StatusCode, location: String },
    InvalidResponse(String),
    Empty,
    Incomplete { why: Option<Error> },
}

/// What the API says of an error.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) status: Option<StatusCode>,
    pub(crate) message: String,
    pub(crate) kind: Option<String>,
    pub(crate) code: Option<String>,
    pub(crate) param: Option<String>,
    /// What Gemini has in the place of a type; not shown.
    pub(crate) status_word: Option<String>,
    /// The text that the server could not read as a call.
    pub(crate) failed_generation: Option<String>,
    pub(crate) retry: RetryHeaders,
    /// The request had no key.
    pub(crate) is_without_key: bool,
}

/// What is told of an error beside its body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) status: Option<StatusCode>,
    pub(crate) request_id: Option<String>,
    pub(crate) retry: RetryHeaders,
    pub(crate) is_without_key: bool,
}

impl Error {
    fn new(kind: Kind) -> Self {
        Self(Box::new(Inner { kind, request_id: None, partial: None }))
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(Kind::Config(message.into()))
    }

    /// The request cannot be sent as it is.
    pub(crate) fn request(message: impl Into<String>) -> Self {
        Self::new(Kind::Request(message.into()))
    }

    pub(crate) fn transport(url: &Url, error: reqwest::Error) -> Self {
        Self::new(Kind::Transport { url: shown(url), error: error.without_url() })
    }

    /// An error by the status of the answer, or by its body under any status. `clean` takes the key out of a text.
    pub(crate) fn api(body: &str, told: Told, clean: impl Fn(&str) -> String) -> Self {
        let error = quirks::api_error(body).unwrap_or_else(|| ApiError {
            // Of a key that is cut, the rest would not be found.
            message: format!("it says: {}", excerpt(&clean(body))),
            ..ApiError::default()
        });
        // The body is read first, because in JSON the key may be written with escapes.
        let clean_all = |text: Option<String>| text.as_deref().map(&clean);
        let error = Self::new(Kind::Api(ApiError {
            message: clean(&error.message),
            kind: clean_all(error.kind),
            code: clean_all(error.code),
            param: clean_all(error.param),
            status_word: error.status_word,
            failed_generation: clean_all(error.failed_generation),
            status: told.status,
            retry: told.retry,
            is_without_key: told.is_without_key,
        }));
        error.with_request_id(clean_all(told.request_id))
    }

    pub(crate) fn with_request_id(mut self, id: Option<String>) -> Self {
        self.0.request_id = self.0.request_id.or(id);
        self
    }

    pub(crate) fn redirected(status: StatusCode, location: &str) -> Self {
        let location = without_query(location);
        Self::new(Kind::Redirected { status, location: excerpt(location) })
    }

    pub(crate) fn invalid_response(message: impl Into<String>) -> Self {
        Self::new(Kind::InvalidResponse(message.into()))
    }

    /// An answer that is no response of the API.
    pub(crate) fn unreadable(content_type: Option<&str>, body: &str, why: &dyn fmt::Display) -> Self {
        let content_type = content_type.unwrap_or("no content type");
        // A page tells of a wrong URL; what may be a reply of the model is nobody's to see.
        let may_be_a_reply = content_type == "text/event-stream" || body.trim_start().starts_with(['{', '[']);
        let came = match may_be_a_reply {
            true => format!("It has {} bytes", body.len()),
            false => format!("It begins: {}", excerpt(body)),
        };
        Self::invalid_response(format!(
            "the answer is not one of the API ({content_type}: {why}); is the base URL right? {came}"
        ))
    }

    /// A stream ended too early.
    pub(crate) fn incomplete(why: Option<Self>) -> Self {
        Self::new(Kind::Incomplete { why })
    }

    pub(crate) fn with_partial(mut self, partial: ChatResponse) -> Self {
        self.0.partial = Some(partial);
        self
    }

    /// The provider ended a reply before its end.
    pub(crate) fn given_up(why: String) -> Self {
        Self::new(Kind::Api(ApiError { message: why, ..ApiError::default() }))
    }

    /// An answer of the API with nothing in it.
    pub(crate) fn empty() -> Self {
        Self::new(Kind::Empty)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.kind {
            Kind::Config(message) | Kind::Request(message) | Kind::InvalidResponse(message) => {
                f.write_str(message)
            }
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
            Kind::Empty => f.write_str("the answer is one of the API, but it holds no reply"),
            Kind::Incomplete { .. } => f.write_str("the stream ended before the response was whole"),
        }?;
        match self.request_id() {
            Some(id) => write!(f, " (request {id})"),
            None => Ok(()),
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
        if self.is_without_key && Class::of(self) == Class::Authentication {
            return f.write_str("; no key was sent: give it by `api_key` or `key_from_env`");
        }
        // The API names a code or a type where it lacks the model; a server without the path does not.
        match self.status {
            Some(StatusCode::NOT_FOUND) if self.code.is_none() && self.kind.is_none() => {
                f.write_str("; is the base URL right?")
            }
            _ => Ok(()),
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
        match &self.0.kind {
            Kind::Transport { error, .. } => Some(error),
            Kind::Incomplete { why: Some(why) } => Some(why),
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
