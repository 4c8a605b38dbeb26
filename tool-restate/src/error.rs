//! The errors of the client.

use std::fmt;
use std::time::Duration;

use restate_sdk::ingress::ClientError;

use tool_core::signatures::{DecisionKind, DecisionRecord};

/// The error of a request to the server.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
    decided: Option<Box<DecisionRecord>>,
}

/// The kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The URL, the key or a value of the context is invalid, or a decision does not fit.
    InvalidInput,
    /// No server could be reached.
    Connect,
    /// The server is older than 1.7.
    ServerTooOld,
    /// No registered worker has the agent.
    UnknownAgent,
    /// The same program is registered under another URI.
    AlreadyRegistered,
    /// The agent has no run with this key, or it has ended and is no longer stored.
    UnknownRun,
    /// The run was killed by the tools of the engine: it has no outcome, and its effects were not undone.
    Killed,
    /// The request took too long, for example because no worker lives. The server may still execute it.
    Timeout,
    /// The key belongs to a run that answers another question.
    KeyInUse,
    /// The run was sent and has not begun yet.
    NotStarted,
    /// The run does not wait for this: it is of another run, or what was shown has changed since.
    UnknownWait,
    /// It was decided before: [`Error::decided`] says how and by whom. Also if the question has expired.
    AlreadyDecided,
    /// The application's [`RunSetup`](tool_core::agent::RunSetup::may_decide) does not let this person or system decide.
    NotAllowed,
    /// The run has ended, or is being undone, and takes no more messages.
    Ended,
    /// The message is too long, or the run has [too many](tool_core::store::MessageVolume).
    Full,
    /// The run does not wait for an operator.
    NotPaused,
    /// The question is larger than the engine takes.
    TooLarge,
    /// The server failed, or sent something unexpected.
    Server,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: String) -> Self {
        Self { kind, message, source: None, decided: None }
    }

    pub(crate) fn with_source(
        kind: ErrorKind,
        message: impl Into<String>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self { kind, message: message.into(), source: Some(Box::new(source)), decided: None }
    }

    pub(crate) fn invalid_url(url: &str) -> Self {
        let url = tool_http::client::redact_urls(url);
        Self::new(
            ErrorKind::InvalidInput,
            format!("invalid URL of a Restate server: `{url}`; write `http://localhost:8080`"),
        )
    }

    pub(crate) fn no_server(url: &str, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        let url = tool_http::client::redact_urls(url);
        let message = format!(
            "no Restate server can be reached at {url}; start one with `npx @restatedev/restate-server`"
        );
        Self::with_source(ErrorKind::Connect, message, source)
    }

    pub(crate) fn timeout(limit: Duration) -> Self {
        let message = format!("there was no response within {limit:?}; check that a worker lives");
        Self::new(ErrorKind::Timeout, message)
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    pub(crate) fn already_decided(record: Option<DecisionRecord>) -> Self {
        let message = match &record {
            Some(DecisionRecord { kind: DecisionKind::Expired, .. }) => "the question has expired".to_owned(),
            Some(DecisionRecord { by: Some(by), .. }) => format!("this was decided before by {by}"),
            _ => "this was decided before".to_owned(),
        };
        let error = Self::new(ErrorKind::AlreadyDecided, message);
        Self { decided: record.map(Box::new), ..error }
    }

    /// Returns the decision that was made before, of an error of the kind [`AlreadyDecided`](ErrorKind::AlreadyDecided).
    #[must_use]
    pub fn decided(&self) -> Option<&DecisionRecord> {
        self.decided.as_deref()
    }

    /// Returns `true` if the server may be there in a moment.
    pub(crate) fn is_transient(&self) -> bool {
        self.kind == ErrorKind::Connect
    }

    pub(crate) fn from_ingress(error: ClientError, url: &str, agent: &str) -> Self {
        match error {
            ClientError::Transport { source } => {
                let error = Self::new(ErrorKind::Connect, String::new());
                let message = Self::no_server(url, fmt::Error).message;
                Self { message, source: Some(source), ..error }
            }
            ClientError::Status { status, response } => {
                let body = String::from_utf8_lossy(response.body()).into_owned();
                Self::from_status(status.as_u16(), &message_of(&body), agent)
            }
            // Not as the source, whose `Debug` contains the response.
            other => {
                let message = format!("the Restate server sent an unexpected response: {other}");
                Self::new(ErrorKind::Server, message)
            }
        }
    }

    /// Describes an error of a request for the outcome of a run.
    pub(crate) fn of_run(self, agent: &str, key: &str) -> Self {
        match self.kind {
            ErrorKind::UnknownWait => Self {
                kind: ErrorKind::UnknownRun,
                message: format!("the agent `{agent}` has no run `{key}`"),
                ..self
            },
            ErrorKind::AlreadyDecided => Self {
                kind: ErrorKind::Killed,
                message: format!(
                    "the run `{key}` of the agent `{agent}` was killed by the tools of the engine; nothing was undone"
                ),
                ..self
            },
            _ => self,
        }
    }

    fn from_status(status: u16, message: &str, agent: &str) -> Self {
        let (kind, message) = match status {
            // The routes of older servers have no `/restate` prefix.
            404 if message.contains("service 'restate'") => (
                ErrorKind::ServerTooOld,
                format!("the Restate server is too old: it must be 1.7 or newer ({message})"),
            ),
            404 if message.contains("service") && message.contains("not found") => (
                ErrorKind::UnknownAgent,
                format!(
                    "no registered worker has the agent `{agent}`; start one, and register its URI with the server ({message})"
                ),
            ),
            404 => (ErrorKind::UnknownWait, message.to_owned()),
            409 => (ErrorKind::AlreadyDecided, message.to_owned()),
            400 => (ErrorKind::InvalidInput, message.to_owned()),
            410 => (ErrorKind::Ended, message.to_owned()),
            403 => (ErrorKind::NotAllowed, message.to_owned()),
            412 => (ErrorKind::NotPaused, message.to_owned()),
            413 => (ErrorKind::TooLarge, message.to_owned()),
            422 => (ErrorKind::KeyInUse, message.to_owned()),
            425 => (ErrorKind::NotStarted, message.to_owned()),
            429 => (ErrorKind::Full, message.to_owned()),
            502..=504 => (ErrorKind::Connect, format!("the Restate server is not ready: {status} {message}")),
            _ => (ErrorKind::Server, format!("the Restate server failed: {status} {message}")),
        };
        Self::new(kind, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// Returns the message of an error of the server.
pub(crate) fn message_of(body: &str) -> String {
    let value: Option<serde_json::Value> = serde_json::from_str(body).ok();
    let message = value.as_ref().and_then(|value| value["message"].as_str());
    message.unwrap_or(body).chars().take(300).collect()
}
