//! Errors of the server.

use std::error::Error;
use std::fmt;
use std::io;

use rmcp::service::ServerInitializeError;
use tokio::task::JoinError;
use tool_core::BuildError;
use tool_core::signatures::MissingContext;
use tool_http::server::BindError;

/// An error that prevents tools from being served.
pub struct ServerError {
    kind: ServerErrorKind,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// The kind of a [`ServerError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServerErrorKind {
    /// A tool needs a value that the context lacks: add it with [`Server::context`](super::Server::context).
    MissingContext,
    /// An [output schema](super::Server::output_schema) is of an unknown tool.
    OutputSchema,
    /// Requests cannot be authorized: the [resource](super::ProtectedResource) is invalid, options contradict each other, or a
    /// [scope](super::Server::scope) is invalid or of an unknown tool.
    Authorization,
    /// The server has no [tasks](super::Server::tasks), or a [long call](super::Server::long_call) is of an unknown tool.
    Tasks,
    /// The address cannot be bound, or may not be bound without [`allow_remote`](super::Server::allow_remote).
    Address,
    /// The client violated the protocol at the start, or its streams failed.
    Stream,
}

impl ServerError {
    pub(super) fn missing_context(missing: MissingContext) -> Self {
        Self::with_source(ServerErrorKind::MissingContext, "the tools cannot be served", missing)
    }

    /// The setting is of a tool that the server does not have.
    pub(super) fn unknown_tool(kind: ServerErrorKind, setting: &str, name: &str) -> Self {
        let name = name.escape_debug();
        let message =
            format!("{setting} `{name}` is of an unknown tool; use the name of a tool of the server");
        Self { kind, message, source: None }
    }

    pub(super) fn authorization(problem: &str) -> Self {
        let message = format!("requests cannot be authorized: {problem}");
        Self { kind: ServerErrorKind::Authorization, message, source: None }
    }

    pub(super) fn address(error: BindError) -> Self {
        match error {
            BindError::Io(error) => {
                Self::with_source(ServerErrorKind::Address, "the address cannot be bound", error)
            }
            BindError::Remote(address) => {
                let message = format!(
                    "`{address}` can be reached from other machines; bind to `127.0.0.1`, or call `allow_remote()`"
                );
                Self { kind: ServerErrorKind::Address, message, source: None }
            }
        }
    }

    pub(super) fn no_tasks() -> Self {
        let message = "the server has no tasks; add `tasks` with a store".into();
        Self { kind: ServerErrorKind::Tasks, message, source: None }
    }

    pub(super) fn task_agent(source: BuildError) -> Self {
        Self::with_source(ServerErrorKind::Tasks, "the agent of the tasks cannot be built", source)
    }

    pub(super) fn stdio(source: io::Error) -> Self {
        Self::with_source(ServerErrorKind::Stream, "standard input and output cannot be redirected", source)
    }

    pub(super) fn no_runtime(source: io::Error) -> Self {
        Self::with_source(ServerErrorKind::Stream, "the server cannot be started", source)
    }

    pub(super) fn initialization(error: &ServerInitializeError) -> Self {
        // The error is not the source, because its text contains what the client sent.
        let message = match error {
            ServerInitializeError::ExpectedInitializeRequest(_) => {
                "the first message of the client is not `initialize`"
            }
            ServerInitializeError::TransportError { .. } => {
                "the client disconnected during the initialization of the session"
            }
            _ => "the session could not be initialized",
        };
        Self { kind: ServerErrorKind::Stream, message: message.into(), source: None }
    }

    pub(super) fn session_failed(source: JoinError) -> Self {
        Self::with_source(ServerErrorKind::Stream, "the session failed", source)
    }

    fn with_source(
        kind: ServerErrorKind,
        message: &str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { kind, message: message.into(), source: Some(source.into()) }
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> ServerErrorKind {
        self.kind
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Shows the message and its source, so that the error is readable when `main` returns it.
impl fmt::Debug for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl Error for ServerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
