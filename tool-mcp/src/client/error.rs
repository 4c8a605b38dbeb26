//! Errors of MCP servers and of calls of their tools.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{ErrorCode, ErrorData};
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::{AuthRequiredError, StreamableHttpError};
use serde_json::Value;
use tool_core::provider::printable;
use tool_http::client::{Redactor, redact_urls, sources};

use super::difference::{Change, Difference};
use super::invalid_response::INVALID_RESPONSE_MARKER;
use super::text::{truncate, truncate_name};
use super::tool_name::sanitize_tool_name;
use crate::oauth::OAuthError;

type HttpError = StreamableHttpError<reqwest::Error>;

/// The longest excerpt of a server's error message, in characters.
const MAX_QUOTED_CHARS: usize = 2000;

/// The number of tools that a refusal names.
const MAX_NAMED_CHANGES: usize = 5;

/// What a model reads about a call that is not repeated.
const OUTCOME_UNKNOWN: &str =
    "the call may or may not have taken effect and is not repeated; check its effect before you continue";

/// An error of an MCP server, or of a call of one of its tools. The message names the server.
///
/// If a call fails with this error, it is the [`failure`](tool_core::ToolError::failure) of the
/// [`ToolError`](tool_core::ToolError). It never contains a token, a header or the value of an environment variable.
#[derive(Clone)]
pub struct McpError(Arc<Inner>);

struct Inner {
    kind: McpErrorKind,
    message: String,
    difference: Option<Difference>,
    data: Option<Value>,
}

/// The category of an [`McpError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum McpErrorKind {
    /// The configuration of the server is invalid, which is a mistake in the program.
    Config,
    /// The server cannot be started or reached, but may become available later.
    Unreachable,
    /// The connection was lost while a response was pending: the request may have taken effect.
    ConnectionLost,
    /// The server did not respond in time.
    Timeout,
    /// The server requires a token, or a different one, or a login failed that nobody refused.
    Unauthorized,
    /// The user has to log in, or to log in again: see [`oauth`](crate::oauth).
    LoginRequired,
    /// The user or the authorization server has refused the login, or nobody has logged in within five minutes.
    LoginRefused,
    /// A response does not follow the protocol, or is larger than [`max_message_bytes`].
    ///
    /// [`max_message_bytes`]: super::McpServer::max_message_bytes
    InvalidResponse,
    /// The server answered with an error of the protocol, for example because it no longer has the tool.
    Rejected,
    /// The tool ran and reported a failure.
    ToolFailed,
    /// The tools or instructions differ from the [pinned](super::McpServer::pinned) fingerprint.
    FingerprintMismatch,
    /// A stored call was sent to another server that had the name, and is not continued.
    OtherServer,
    /// The connection belongs to another user than the run.
    OtherUser,
    /// The server lists more tools than [`max_tools`](super::McpServer::max_tools).
    TooManyTools,
    /// The server does not have a selected tool, or two of its tools have the same name after they were renamed.
    InvalidToolSet,
}

/// Returns the start of a text of the server, without secrets and characters that control a terminal.
fn quote(text: &str, redactor: &Redactor) -> String {
    printable(&truncate(&redactor.redact(text), MAX_QUOTED_CHARS)).into_owned()
}

impl McpError {
    /// Creates an error with the message "the MCP server `name` …".
    fn new(kind: McpErrorKind, server: &str, problem: impl fmt::Display) -> Self {
        Self::with_message(kind, format!("the MCP server `{server}` {problem}"))
    }

    fn with_message(kind: McpErrorKind, message: String) -> Self {
        Self(Arc::new(Inner { kind, message, difference: None, data: None }))
    }

    /// The rejected URL is not part of the message, because it may contain a password.
    pub(super) fn invalid_url() -> Self {
        let message = "invalid MCP server URL; expected a URL such as `https://example.org/mcp`";
        Self::with_message(McpErrorKind::Config, message.into())
    }

    pub(super) fn invalid_config(server: &str, reason: impl fmt::Display) -> Self {
        let message = format!("invalid configuration of the MCP server `{server}`: {reason}");
        Self::with_message(McpErrorKind::Config, message)
    }

    pub(super) fn not_started(server: &str, program: &str, error: &std::io::Error) -> Self {
        let problem = format!("cannot be started: `{program}`: {error}");
        Self::new(McpErrorKind::Unreachable, server, problem)
    }

    pub(super) fn unreachable(server: &str, problem: impl fmt::Display) -> Self {
        Self::new(McpErrorKind::Unreachable, server, problem)
    }

    pub(super) fn not_connected(server: &str, error: &std::io::Error, redactor: &Redactor) -> Self {
        let text = quote(&redact_urls(&error.to_string()), redactor);
        Self::unreachable(server, format_args!("cannot be reached: {text}"))
    }

    /// The user was asked to log in.
    pub(super) fn not_logged_in(server: &str) -> Self {
        Self::new(McpErrorKind::LoginRequired, server, "requires a login, and the user has not logged in")
    }

    /// A run of one user would act with the credentials of another one.
    pub(super) fn other_user(server: &str) -> Self {
        let problem = "is connected for another user than that of the run; use `McpServer::per_user`";
        Self::new(McpErrorKind::OtherUser, server, problem)
    }

    /// The connection was lost during a call of the tool.
    pub(super) fn connection_lost(server: &str, tool: &str) -> Self {
        let tool = truncate_name(tool);
        let problem = format!("disconnected while its tool `{tool}` was running: {OUTCOME_UNKNOWN}");
        Self::new(McpErrorKind::ConnectionLost, server, problem)
    }

    pub(super) fn timeout(server: &str, request: &str, limit: Duration) -> Self {
        Self::new(
            McpErrorKind::Timeout,
            server,
            format_args!("did not respond to {request} within {limit:?}"),
        )
    }

    pub(super) fn invalid_response(server: &str, problem: impl fmt::Display) -> Self {
        Self::new(McpErrorKind::InvalidResponse, server, problem)
    }

    /// The result is valid, but not a result of this request.
    pub(super) fn unexpected_result(server: &str, request: &str) -> Self {
        Self::invalid_response(server, format_args!("answered {request} with an unexpected result"))
    }

    pub(super) fn too_many_tools(server: &str, problem: impl fmt::Display) -> Self {
        Self::new(McpErrorKind::TooManyTools, server, problem)
    }

    /// The schema of a tool cannot be used to check arguments.
    pub(super) fn invalid_schema(
        server: &str,
        error: &tool_core::signatures::DynamicToolError,
        redactor: &Redactor,
    ) -> Self {
        let text = quote(&error.to_string(), redactor);
        Self::invalid_response(server, format_args!("has a tool that cannot be called: {text}"))
    }

    /// The tools do not form the set that was configured.
    pub(super) fn invalid_tool_set(server: &str, error: &tool_core::toolset::ToolSetError) -> Self {
        let problem = format!("cannot provide the requested set of tools: {error}");
        Self::new(McpErrorKind::InvalidToolSet, server, problem)
    }

    /// The message does not quote the changes, because models read it.
    pub(super) fn fingerprint_mismatch(server: &str, difference: Difference) -> Self {
        let message = format!(
            "the MCP server `{server}` is refused because its tools differ from the pinned fingerprint: {}; \
             review `McpError::difference` and pin the new fingerprint if the changes are intended",
            summarize(&difference)
        );
        Self(Arc::new(Inner {
            kind: McpErrorKind::FingerprintMismatch,
            message,
            difference: Some(difference),
            data: None,
        }))
    }

    /// The tool ran and reported a failure with this message.
    pub(super) fn tool_failed(message: String, data: Option<Value>) -> Self {
        Self(Arc::new(Inner { kind: McpErrorKind::ToolFailed, message, difference: None, data }))
    }

    /// Converts the SDK's error of a request; `request` describes it, for example "the request for its tools".
    pub(super) fn from_service_error(
        server: &str,
        request: &str,
        error: ServiceError,
        redactor: &Redactor,
    ) -> Self {
        match error {
            ServiceError::McpError(data) => Self::from_error_response(server, request, &data, redactor),
            ServiceError::TransportClosed => {
                let problem = format!("disconnected before it answered {request}");
                Self::new(McpErrorKind::ConnectionLost, server, problem)
            }
            ServiceError::TransportSend(error) => Self::from_transport_error(server, &error, redactor),
            ServiceError::Timeout { timeout } => Self::timeout(server, request, timeout),
            ServiceError::UnexpectedResponse => Self::unexpected_result(server, request),
            other => {
                let text = quote(&other.to_string(), redactor);
                Self::new(McpErrorKind::Rejected, server, format_args!("did not answer {request}: {text}"))
            }
        }
    }

    /// The tool wants to ask the user in a way that the newest revision does not have.
    pub(super) fn asks_as_before(server: &str, request: &str, text: &str, redactor: &Redactor) -> Self {
        let text = quote(text, redactor);
        let problem = format!(
            "did not answer {request}, because it asks the user in the way of older revisions: {text}; connect to it with \
             `McpServer::older_revision` and `McpServer::question_timeout`"
        );
        Self::new(McpErrorKind::Rejected, server, problem)
    }

    pub(super) fn task_failed(server: &str, message: &str, redactor: &Redactor) -> Self {
        let text = quote(message, redactor);
        Self::new(
            McpErrorKind::Rejected,
            server,
            format_args!("reports that the task of the call failed: {text}"),
        )
    }

    pub(super) fn task_cancelled(server: &str) -> Self {
        Self::new(McpErrorKind::Rejected, server, "cancelled the task of the call")
    }

    /// The call was sent to a server that had the name before.
    pub(super) fn other_server(server: &str) -> Self {
        let problem = "is another one than that which the call was sent to: the call is not continued here; \
                       configure the former server, or make a new call";
        Self::new(McpErrorKind::OtherServer, server, problem)
    }

    fn from_error_response(server: &str, request: &str, data: &ErrorData, redactor: &Redactor) -> Self {
        let text = quote(&data.message, redactor);
        if data.data.as_ref().is_some_and(|data| data == INVALID_RESPONSE_MARKER) {
            let problem = format!("sent an invalid response to {request}: {text}");
            return Self::invalid_response(server, problem);
        }
        let problem = format!("rejected {request}: {text} (code {})", data.code.0);
        Self::new(McpErrorKind::Rejected, server, problem)
    }

    fn from_transport_error(server: &str, error: &DynamicTransportError, redactor: &Redactor) -> Self {
        let error: &(dyn Error + 'static) = &*error.error;
        if sources(error).any(|error| error.is::<AuthRequiredError>()) {
            let problem = "rejected the authorization (HTTP 401); set a valid token with `bearer_token`, or log in with `oauth`";
            return Self::new(McpErrorKind::Unauthorized, server, problem);
        }
        if let Some(HttpError::Io(error)) = error.downcast_ref()
            && let Some(error) = error.get_ref().and_then(|error| error.downcast_ref())
        {
            return Self::from_oauth_error(server, error, redactor);
        }
        let text = match error.downcast_ref() {
            Some(HttpError::Client(error)) => with_sources(error),
            _ => with_sources(error),
        };
        let text = quote(&redact_urls(&text), redactor);
        Self::unreachable(server, format_args!("cannot be reached: {text}"))
    }

    pub(super) fn from_oauth_error(server: &str, error: &OAuthError, redactor: &Redactor) -> Self {
        let text = quote(&error.to_string(), redactor);
        let (kind, problem) = match error {
            OAuthError::LoginRequired(_) => (McpErrorKind::LoginRequired, "requires a login"),
            OAuthError::LoginRefused(_) => (McpErrorKind::LoginRefused, "cannot be authorized"),
            _ => (McpErrorKind::Unauthorized, "cannot be authorized"),
        };
        Self::new(kind, server, format_args!("{problem}: {text}"))
    }

    /// Converts the SDK's error of the handshake; `note` is appended if the server did not speak the protocol.
    pub(super) fn from_initialize_error(
        server: &str,
        error: &ClientInitializeError,
        note: &str,
        redactor: &Redactor,
    ) -> Self {
        let request = "the `initialize` request";
        match error {
            ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
                Self::from_initialize_error(server, fallback, note, redactor)
            }
            ClientInitializeError::TransportError { error, .. } => {
                Self::from_transport_error(server, error, redactor)
            }
            ClientInitializeError::JsonRpcError(data) => {
                Self::from_error_response(server, request, data, redactor)
            }
            ClientInitializeError::ConnectionClosed(_) => {
                Self::unreachable(server, format_args!("disconnected before it was initialized{note}"))
            }
            ClientInitializeError::ExpectedInitResponse(_)
            | ClientInitializeError::ExpectedInitResult(_)
            | ClientInitializeError::ConflictInitResponseId(..)
            | ClientInitializeError::UncorrelatedErrorResponse { .. } => {
                Self::unexpected_result(server, request)
            }
            other => {
                let text = quote(&other.to_string(), redactor);
                Self::unreachable(server, format_args!("cannot be initialized: {text}{note}"))
            }
        }
    }

    /// Adds that the call may have taken effect.
    pub(super) fn with_unknown_outcome(&self) -> Self {
        Self::with_message(self.kind(), format!("{self}; {OUTCOME_UNKNOWN}"))
    }

    /// Returns `true` if the server has not answered, but can do so later.
    pub(super) fn is_unanswered(&self) -> bool {
        use McpErrorKind::{ConnectionLost, LoginRequired, Timeout, Unauthorized, Unreachable};
        matches!(self.kind(), Unreachable | ConnectionLost | Timeout | LoginRequired | Unauthorized)
    }

    /// Returns the category of the error.
    #[must_use]
    pub fn kind(&self) -> McpErrorKind {
        self.0.kind
    }

    /// Returns the differences from the pinned fingerprint, for a [mismatch](McpErrorKind::FingerprintMismatch).
    #[must_use]
    pub fn difference(&self) -> Option<&Difference> {
        self.0.difference.as_ref()
    }

    /// Returns the data of a tool's [failure](McpErrorKind::ToolFailed) beside its text, in the form of the data of a
    /// [`ToolOutput`](tool_core::ToolOutput).
    #[must_use]
    pub fn data(&self) -> Option<&Value> {
        self.0.data.as_ref()
    }
}

/// Returns `true` if the server reports that it supports only the protocol of 2026-07-28 or later.
pub(super) fn requires_newer_protocol(error: &ClientInitializeError) -> bool {
    matches!(
        error,
        ClientInitializeError::JsonRpcError(data)
            if data.code == ErrorCode::METHOD_NOT_FOUND || data.code == ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
    )
}

/// Returns `true` if a server did not understand `server/discover`, and has not refused `initialize`.
pub(super) fn may_be_older(error: &ClientInitializeError) -> bool {
    use ClientInitializeError::{JsonRpcError, LegacyFallbackFailed};
    !matches!(error, JsonRpcError(_) | LegacyFallbackFailed { .. })
}

/// Returns `true` if the request may have reached the server although its response did not arrive.
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

/// Returns `true` if the server refused the request because the session had ended.
pub(super) fn is_session_expired(error: &ServiceError) -> bool {
    let ServiceError::TransportSend(error) = error else { return false };
    matches!(error.error.downcast_ref(), Some(HttpError::SessionExpired))
}

/// Returns `true` if the server refused a request because of the state that it had left with the client, which may have expired.
pub(super) fn is_state_expired(error: &ServiceError) -> bool {
    let ServiceError::McpError(error) = error else { return false };
    let reason = error.data.as_ref().and_then(|data| data["reason"].as_str());
    error.code == ErrorCode::INVALID_PARAMS
        && (reason == Some("invalid_request_state") || error.message.contains("requestState"))
}

/// Returns the pages that a server of an older revision wants to be opened before it accepts a call.
pub(super) fn pages_to_open(error: &ServiceError) -> Option<Value> {
    const URL_ELICITATION_REQUIRED: ErrorCode = ErrorCode(-32042);
    let ServiceError::McpError(error) = error else { return None };
    let pages = error.data.as_ref().filter(|_| error.code == URL_ELICITATION_REQUIRED)?.get("elicitations");
    pages.filter(|pages| pages.as_array().is_some_and(|pages| !pages.is_empty())).cloned()
}

/// Returns `true` if a message of a server of the newest revision is about a request to the client, such as a question, which only older
/// revisions have. There is no code for it; these are the words of the Python SDK and of FastMCP.
pub(super) fn is_about_older_questions(message: &str) -> bool {
    message.contains("elicitation") && message.contains("server-initiated requests")
}

/// Names the changed tools, with letters, digits, `_` and `-` only, because the server chooses the names of new ones.
fn summarize(difference: &Difference) -> String {
    let mut names: Vec<String> = Vec::new();
    for change in difference.changes() {
        let summary = match change {
            Change::Instructions { .. } => "its instructions changed".to_owned(),
            Change::Added { tool } => format!("`{}` was added", sanitize_tool_name(tool)),
            Change::Removed { tool } => format!("`{}` was removed", sanitize_tool_name(tool)),
            Change::Changed { tool, .. } => format!("`{}` changed", sanitize_tool_name(tool)),
        };
        if names.last() != Some(&summary) {
            names.push(summary);
        }
    }
    let more = names.len().saturating_sub(MAX_NAMED_CHANGES);
    names.truncate(MAX_NAMED_CHANGES);
    let names = names.join(", ");
    if more > 0 { format!("{names} and {more} more") } else { names }
}

/// Returns the text of an error with those of its sources that say more.
fn with_sources(error: &(dyn Error + 'static)) -> String {
    sources(error).map(ToString::to_string).fold(String::new(), |text, more| match &*text {
        "" => more,
        _ if text.contains(&more) => text,
        _ => format!("{text}: {more}"),
    })
}

impl fmt::Display for McpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

/// Shows the message, so that it is readable when `main` returns the error. The message of a failed tool is omitted,
/// because it may repeat arguments.
impl fmt::Debug for McpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.kind {
            McpErrorKind::ToolFailed => {
                write!(f, "McpError(the tool failed, {} bytes)", self.0.message.len())
            }
            _ => fmt::Display::fmt(self, f),
        }
    }
}

impl Error for McpError {}
