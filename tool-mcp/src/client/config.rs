//! Configuration of a server before a connection is opened.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rmcp::service::ServiceError;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tool_core::ToolContext;
use tool_core::model::RunUser;
use tool_http::client::Redactor;

use super::error::{McpError, McpErrorKind};
use super::fingerprint::Fingerprint;
use super::http::HttpConfig;
use super::monitor::LogHook;
use super::process::{Pipes, ProcessConfig};
use super::text::hex;
use super::trust::Trust;
use crate::oauth::Session;

pub(super) type Connector =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = io::Result<Pipes>> + Send>> + Send + Sync>;

/// The shortest secret that is redacted, in bytes. Shorter ones also occur as parts of ordinary words.
const MIN_SECRET_BYTES: usize = 6;

/// The number of logins for one request: the first, and one for further scopes.
const MAX_LOGINS: usize = 2;

/// The transport of a server.
#[derive(Clone)]
pub(super) enum Endpoint {
    Process(ProcessConfig),
    Http(HttpConfig),
    Connector(Connector),
}

#[derive(Clone)]
pub(super) struct ServerConfig {
    pub(super) name: String,
    /// The user that the connection is for; `None` leaves it to the login.
    pub(super) user: Option<RunUser>,
    pub(super) endpoint: Endpoint,
    pub(super) timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) question_timeout: Option<Duration>,
    /// The server is connected in the way of an older revision, if it knows one.
    pub(super) is_older: bool,
    pub(super) max_message_bytes: usize,
    pub(super) max_tools: usize,
    pub(super) max_output_chars: usize,
    pub(super) is_optional: bool,
    pub(super) lists_resources: bool,
    pub(super) trust: Trust,
    pub(super) pinned: Option<Arc<Fingerprint>>,
    pub(super) on_log: Option<LogHook>,
    pub(super) records_messages: bool,
    pub(super) redactor: Redactor,
}

impl ServerConfig {
    /// Returns the login of the user.
    pub(super) fn session(&self) -> Option<&Arc<Session>> {
        match &self.endpoint {
            Endpoint::Http(http) => http.session.as_ref(),
            _ => None,
        }
    }

    /// Returns the user that the connection is for. It is empty for the login of a program, and `None` if anybody can use it.
    fn user(&self) -> Option<&str> {
        let login = || self.session().and_then(|session| session.user());
        self.user.as_ref().map(RunUser::as_str).or_else(login)
    }

    /// # Errors
    ///
    /// Returns an error if the run belongs to another user than the connection, whose credentials would act for it.
    pub(super) fn check_user(&self, context: &ToolContext) -> Result<(), McpError> {
        let found = context.get::<RunUser>().map_or("", RunUser::as_str);
        match self.user() {
            Some(user) if !found.is_empty() && user != found => Err(McpError::other_user(&self.name)),
            _ => Ok(()),
        }
    }

    /// Returns a digest of what distinguishes the server: its name, its user, and its URL or its command. Tokens and
    /// variables are not part of it, because they are renewed. Of a connector, only the name is known.
    pub(super) fn identity(&self) -> String {
        let endpoint = match &self.endpoint {
            Endpoint::Http(http) => {
                json!(http.url.as_str())
            }
            Endpoint::Process(ProcessConfig { program, args, directory, .. }) => {
                json!([
                    format!("{program:?}"),
                    format!("{args:?}"),
                    directory.as_ref().map(|path| format!("{path:?}"))
                ])
            }
            Endpoint::Connector(_) => Value::Null,
        };
        hex(&Sha256::digest(json!([self.name, self.user(), endpoint]).to_string()))
    }

    /// Lets the user log in after an error that requires it, so that the request can be repeated. `earlier` counts the logins.
    ///
    /// # Errors
    ///
    /// Returns the error if it is another one, or if this function cannot help; otherwise the reason why nobody has logged in.
    pub(super) async fn log_in(
        &self,
        error: McpError,
        earlier: &mut usize,
        is_call: bool,
    ) -> Result<(), McpError> {
        let session = self.session().filter(|_| error.kind() == McpErrorKind::LoginRequired);
        let Some(session) = session.filter(|_| *earlier < MAX_LOGINS) else { return Err(error) };
        *earlier += 1;
        match session.log_in(is_call).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(error),
            Err(error) => Err(McpError::from_oauth_error(&self.name, &error, &self.redactor)),
        }
    }

    /// Awaits the response to a request, which errors call by this name, within the time of one.
    pub(super) async fn await_response<T>(
        &self,
        request: &str,
        response: impl Future<Output = Result<T, ServiceError>>,
    ) -> Result<T, McpError> {
        let response = tokio::time::timeout(self.timeout, response).await;
        let response = response.map_err(|_| McpError::timeout(&self.name, request, self.timeout))?;
        response.map_err(|error| McpError::from_service_error(&self.name, request, error, &self.redactor))
    }

    pub(super) fn new(name: String, endpoint: Endpoint) -> Self {
        Self {
            name,
            user: None,
            endpoint,
            timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(60),
            question_timeout: None,
            is_older: false,
            max_message_bytes: 16 << 20,
            max_tools: 2000,
            max_output_chars: 100_000,
            is_optional: false,
            lists_resources: false,
            trust: Trust::default(),
            pinned: None,
            on_log: None,
            records_messages: false,
            redactor: Redactor::new("[…]", MIN_SECRET_BYTES),
        }
    }
}
