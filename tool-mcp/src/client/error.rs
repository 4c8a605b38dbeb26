//! What can go wrong with a server.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{ErrorCode, ErrorData};
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::{AuthRequiredError, StreamableHttpError};
use serde_json::Value;

use super::Difference;
use super::secrets::Secrets;

type HttpError = StreamableHttpError<reqwest::Error>;

/// How much of what a server says of its error is repeated, in characters.
const LONGEST_QUOTE: usize = 2000;

/// Marks the errors that stand for an answer of the server that could not be read.
pub(super) const UNREADABLE: &str = "tool-mcp: the answer could not be read";

/// What is wrong with an MCP server, or with a call of one of its tools. The text names the server.
///
/// Where a call fails with one, it is the [`failure`](tool_core::ToolError::failure) of the
/// [`ToolError`](tool_core::ToolError). It never holds a token, a header or the value of an environment variable.
#[derive(Clone)]
pub struct McpError(Arc<Inner>);

struct Inner {
    kind: Kind,
    message: String,
    difference: Option<Difference>,
    data: Option<Value>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Config,
    Unreachable,
    Lost,
    TimedOut,
    Unauthorized,
    Unreadable,
    Refused,
    Failed,
    Changed,
    TooMuch,
    Tools,
}

impl McpError {
    fn new(kind: Kind, server: &str, what: impl fmt::Display) -> Self {
        let message = format!("the MCP server `{server}` {what}");
        Self(Arc::new(Inner { kind, message, difference: None, data: None }))
    }

    pub(super) fn config(server: &str, what: impl fmt::Display) -> Self {
        Self::new(Kind::Config, server, format_args!("is not set up rightly: {what}"))
    }

    pub(super) fn not_started(server: &str, program: &str, error: &std::io::Error) -> Self {
        let what = format_args!("cannot be started: `{program}`: {error}");
        Self::new(Kind::Unreachable, server, what)
    }

    pub(super) fn unreachable(server: &str, what: impl fmt::Display) -> Self {
        Self::new(Kind::Unreachable, server, what)
    }

    /// The connection ended while the result of a tool was waited for.
    pub(super) fn lost(server: &str, tool: &str) -> Self {
        let what = format_args!(
            "went away while its tool `{tool}` ran: the call may or may not have had its effect, and is not made \
             again; find out before you go on"
        );
        Self::new(Kind::Lost, server, what)
    }

    pub(super) fn timed_out(server: &str, what: &str, after: Duration) -> Self {
        Self::new(Kind::TimedOut, server, format_args!("has not answered {what} within {after:?}"))
    }

    pub(super) fn unreadable(server: &str, what: impl fmt::Display) -> Self {
        Self::new(Kind::Unreadable, server, what)
    }

    pub(super) fn too_much(server: &str, what: impl fmt::Display) -> Self {
        Self::new(Kind::TooMuch, server, what)
    }

    /// The schema of a tool is none that arguments can be checked by.
    pub(super) fn unusable(server: &str, error: &tool_core::DynamicToolError) -> Self {
        Self::new(Kind::Unreadable, server, format_args!("has a tool that cannot be called: {error}"))
    }

    /// The tools that are there are none that a set can be made of.
    pub(super) fn tools(server: &str, error: &tool_core::ToolSetError) -> Self {
        Self::new(Kind::Tools, server, format_args!("has tools that cannot be offered so: {error}"))
    }

    pub(super) fn changed(server: &str, difference: Difference) -> Self {
        let message = format!(
            "the MCP server `{server}` is refused, as its tools are not the pinned ones:\n{difference}\n\
             look at the change, and pin the new fingerprint if it is as it should be"
        );
        Self(Arc::new(Inner { kind: Kind::Changed, message, difference: Some(difference), data: None }))
    }

    /// The tool ran and says that it failed: the words are the tool's own.
    pub(super) fn failed(message: String, data: Option<Value>) -> Self {
        Self(Arc::new(Inner { kind: Kind::Failed, message, difference: None, data }))
    }

    /// What the SDK says of a request; `what` was asked for, such as `its tools`.
    pub(super) fn of_request(server: &str, what: &str, error: ServiceError, secrets: &Secrets) -> Self {
        match error {
            ServiceError::McpError(data) => Self::of_answer(server, what, &data, secrets),
            ServiceError::TransportClosed => {
                Self::new(Kind::Lost, server, format_args!("went away before it answered {what}"))
            }
            ServiceError::TransportSend(error) => Self::of_transport(server, &error, secrets),
            ServiceError::Timeout { timeout } => Self::timed_out(server, what, timeout),
            ServiceError::UnexpectedResponse => Self::unexpected(server, what),
            other => Self::new(Kind::Refused, server, format_args!("did not answer {what}: {other}")),
        }
    }

    /// It answered with something that is no answer to what was asked.
    pub(super) fn unexpected(server: &str, what: &str) -> Self {
        Self::new(Kind::Unreadable, server, format_args!("answered {what} with something else"))
    }

    fn of_answer(server: &str, what: &str, data: &ErrorData, secrets: &Secrets) -> Self {
        let text = secrets.hide(&cut(&data.message));
        if data.data.as_ref().is_some_and(|data| data == UNREADABLE) {
            return Self::new(Kind::Unreadable, server, format_args!("answered {what}, but {text}"));
        }
        let what = format_args!("refused {what}: {text} (code {})", data.code.0);
        Self::new(Kind::Refused, server, what)
    }

    fn of_transport(server: &str, error: &DynamicTransportError, secrets: &Secrets) -> Self {
        let error: &(dyn Error + 'static) = &*error.error;
        if is_unauthorized(error) {
            let what = "refused the authorization (401); give it a valid token with `bearer_token`";
            return Self::new(Kind::Unauthorized, server, what);
        }
        let text = match error.downcast_ref() {
            Some(HttpError::Client(error)) => with_sources(error),
            _ => with_sources(error),
        };
        let text = secrets.hide(&cut(&text));
        Self::new(Kind::Unreachable, server, format_args!("cannot be reached: {text}"))
    }

    /// Why there is no connection; `aside` tells of what came beside the protocol.
    pub(super) fn of_start(
        server: &str,
        error: &ClientInitializeError,
        aside: &str,
        secrets: &Secrets,
    ) -> Self {
        match error {
            ClientInitializeError::TransportError { error, .. } => Self::of_transport(server, error, secrets),
            ClientInitializeError::JsonRpcError(data) => {
                Self::of_answer(server, "the `initialize` request", data, secrets)
            }
            ClientInitializeError::ConnectionClosed(_) => {
                Self::unreachable(server, format_args!("ended before it was initialized{aside}"))
            }
            ClientInitializeError::ExpectedInitResponse(_)
            | ClientInitializeError::ExpectedInitResult(_)
            | ClientInitializeError::ConflictInitResponseId(..)
            | ClientInitializeError::UncorrelatedErrorResponse { .. } => {
                Self::unexpected(server, "the `initialize` request")
            }
            other => Self::unreachable(server, format_args!("cannot be initialized: {other}{aside}")),
        }
    }

    /// The server is not set up rightly: the mistake is in the program.
    #[must_use]
    pub fn is_config(&self) -> bool {
        self.0.kind == Kind::Config
    }

    /// The server cannot be started or reached, or the connection to it is lost: it may be there again later.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        matches!(self.0.kind, Kind::Unreachable | Kind::Lost)
    }

    /// The connection was lost while an answer was waited for: what was asked for may have been done.
    #[must_use]
    pub fn is_outcome_unknown(&self) -> bool {
        self.0.kind == Kind::Lost
    }

    /// The server took longer than it may.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        self.0.kind == Kind::TimedOut
    }

    /// The server wants another token, or one at all.
    #[must_use]
    pub fn is_unauthorized(&self) -> bool {
        self.0.kind == Kind::Unauthorized
    }

    /// The server answered with what is no answer of the protocol, or is larger than it may be.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        self.0.kind == Kind::Unreadable
    }

    /// The server answered with an error of the protocol, such as for a tool that it does not have any more.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.0.kind == Kind::Refused
    }

    /// The tool ran and says that it failed.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        self.0.kind == Kind::Failed
    }

    /// The tools are not the [pinned](super::McpServer::pinned) ones; [`difference`](Self::difference) tells how.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.0.kind == Kind::Changed
    }

    /// The server has more tools than it may.
    #[must_use]
    pub fn is_too_much(&self) -> bool {
        self.0.kind == Kind::TooMuch
    }

    /// The server has no tool of a name that was chosen, or has two of a name after they were renamed.
    #[must_use]
    pub fn is_tools(&self) -> bool {
        self.0.kind == Kind::Tools
    }

    /// In what the tools differ from the pinned ones.
    #[must_use]
    pub fn difference(&self) -> Option<&Difference> {
        self.0.difference.as_ref()
    }

    /// What the result of a tool that [failed](Self::is_failed) has beside its text, in the form of the data of
    /// an output.
    #[must_use]
    pub fn data(&self) -> Option<&Value> {
        self.0.data.as_ref()
    }
}

/// A server that does not speak the protocol of before 2026-07-28 at all says so.
pub(super) fn wants_newer_protocol(error: &ClientInitializeError) -> bool {
    matches!(
        error,
        ClientInitializeError::JsonRpcError(data)
            if data.code == ErrorCode::METHOD_NOT_FOUND || data.code == ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
    )
}

/// The request may have reached the server, but its answer did not come back.
pub(super) fn is_interrupted(error: &ServiceError) -> bool {
    match error {
        ServiceError::TransportClosed => true,
        ServiceError::TransportSend(error) => match error.error.downcast_ref() {
            Some(HttpError::Client(error)) => !error.is_connect() && !error.is_builder(),
            Some(HttpError::SessionRecoveryTimeout) => true,
            _ => false,
        },
        _ => false,
    }
}

fn is_unauthorized(error: &(dyn Error + 'static)) -> bool {
    let mut source = Some(error);
    while let Some(error) = source {
        if error.is::<AuthRequiredError>() {
            return true;
        }
        source = error.source();
    }
    false
}

fn with_sources(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = error.source();
    }
    text
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST_QUOTE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

impl fmt::Display for McpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

/// The text, so that a `main` that returns the error shows it readably; not what a tool said of its failure, which may
/// repeat its arguments.
impl fmt::Debug for McpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.kind {
            Kind::Failed => write!(f, "McpError(the tool failed, {} bytes)", self.0.message.len()),
            _ => fmt::Display::fmt(self, f),
        }
    }
}

impl Error for McpError {}
