//! Why tools are not served.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;

use tool_core::MissingContext;

/// Why tools are not served.
pub struct ServerError {
    kind: Kind,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    MissingContext,
    Schema,
    Address,
    Stream,
}

impl ServerError {
    pub(super) fn missing_context(missing: MissingContext) -> Self {
        Self::new(Kind::MissingContext, "the tools cannot be served", missing)
    }

    pub(super) fn schema_of_no_tool(name: &str) -> Self {
        let message =
            format!("the output schema of `{name}` is of no tool that is served; give it the name of one");
        Self { kind: Kind::Schema, message, source: None }
    }

    pub(super) fn address(source: io::Error) -> Self {
        Self::new(Kind::Address, "the address cannot be bound", source)
    }

    pub(super) fn remote(address: SocketAddr) -> Self {
        let message = format!(
            "`{address}` can be reached from other machines; bind to 127.0.0.1, or say `allow_remote()`"
        );
        Self { kind: Kind::Address, message, source: None }
    }

    pub(super) fn stdio(source: io::Error) -> Self {
        Self::new(Kind::Stream, "standard input and output cannot be taken", source)
    }

    pub(super) fn not_begun(error: rmcp::service::ServerInitializeError) -> Self {
        use rmcp::service::ServerInitializeError as E;
        // Its own text shows what the client sent.
        let message = match &error {
            E::ExpectedInitializeRequest(_) => "the client began with something else than `initialize`",
            E::TransportError { .. } => "the client went away while the session began",
            _ => "the session did not begin",
        };
        Self { kind: Kind::Stream, message: message.into(), source: None }
    }

    pub(super) fn ended(source: tokio::task::JoinError) -> Self {
        Self::new(Kind::Stream, "the session broke off", source)
    }

    fn new(kind: Kind, message: &str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, message: message.into(), source: Some(source.into()) }
    }

    /// A tool takes a value from its context that is not there: hand it in with [`Server::context`](super::Server::context).
    #[must_use]
    pub fn is_missing_context(&self) -> bool {
        self.kind == Kind::MissingContext
    }

    /// An [output schema](super::Server::output_schema) is of no tool.
    #[must_use]
    pub fn is_schema(&self) -> bool {
        self.kind == Kind::Schema
    }

    /// The address cannot be bound, or may not be.
    #[must_use]
    pub fn is_address(&self) -> bool {
        self.kind == Kind::Address
    }

    /// The client did not keep to the protocol from the start, or its streams broke.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        self.kind == Kind::Stream
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The text and its source, so that a `main` that returns the error shows it readably.
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
