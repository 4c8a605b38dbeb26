//! The builder of a server: its transport, limits, and the trust in it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use tokio::io::{AsyncRead, AsyncWrite};
use tool_core::model::RunUser;
use tool_http::LONGEST_TIMEOUT;

use super::config::{Endpoint, ServerConfig};
use super::connection::Connection;
use super::connection_manager::ConnectionManager;
use super::http::HttpConfig;
use super::process::{Pipes, ProcessConfig};
use super::{Fingerprint, McpError, McpErrorKind, McpLog, McpTool, McpTools};
use crate::oauth::{OAuth, Session};

/// An MCP server to use tools from: its transport, limits, and the trust in it.
///
/// Servers are not trusted by default. A process inherits only a few variables, such as `PATH` and `HOME`, and those that are named. Each call
/// needs a person's approval, because everything that a server states about its tools can be false: see [`approved`](Self::approved),
/// [`trust_annotations`](Self::trust_annotations) and [`trusted`](Self::trusted). Responses are limited in time and size.
/// [`pinned`](Self::pinned) refuses a server whose tools or instructions changed.
///
/// # Traces
///
/// The SDK records arguments, outputs and ids of sessions. It runs on threads of its own, whose `tracing` records are
/// discarded. The hooks of this type are called on these threads with the subscriber that was current while connecting, and must
/// not block. These threads have a subscriber, so the feature `log` of `tracing` no longer forwards records of the process to a
/// logger of the crate `log`. Requests that are sent with [`McpTools::peer`] run in the caller's task: the directive `rmcp=off` of a filter
/// suppresses the records of the SDK there.
///
/// ```no_run
/// use tool_core::Agent;
/// use tool_mcp::McpServer;
///
/// # async fn run(model: impl tool_core::ChatModel + 'static) -> Result<(), Box<dyn std::error::Error>> {
/// let files = McpServer::stdio("npx")
///     .args(["-y", "@modelcontextprotocol/server-filesystem", "/home/me/notes"])
///     .name("files")
///     .connect()
///     .await?
///     .prefix("files_");
/// let tickets = McpServer::http("https://tickets.example.org/mcp")
///     .bearer_token(std::env::var("TICKETS_TOKEN")?)
///     .optional()
///     .connect()
///     .await?;
/// let agent = Agent::builder(model).tool_provider(files).tool_provider(tickets).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct McpServer {
    config: Result<ServerConfig, McpError>,
}

impl McpServer {
    /// Creates a server that is started as a child process and communicates over stdin and stdout.
    ///
    /// When the tools are dropped, its input is closed. On Unix, the process leads its own process group: processes of
    /// the group that still run after 2 seconds are asked to terminate, and killed after another 2 seconds. Wrappers such as `npx` therefore
    /// leave no server behind, and signals of the terminal do not reach it. On Windows, only the process itself is killed,
    /// so that a process that it started must end when its input is closed.
    ///
    /// The process inherits `HOME`, `LOGNAME`, `PATH`, `SHELL`, `TERM` and `USER` (on Windows `APPDATA`, `HOMEDRIVE`,
    /// `HOMEPATH`, `LOCALAPPDATA`, `PATH`, `PATHEXT`, `PROCESSOR_ARCHITECTURE`, `SYSTEMDRIVE`, `SYSTEMROOT`, `TEMP`,
    /// `USERNAME` and `USERPROFILE`), and gets the variables of [`env`](Self::env) and [`pass_env`](Self::pass_env). Its
    /// stderr is discarded unless there is a hook: [`on_stderr`](Self::on_stderr).
    #[must_use]
    pub fn stdio(program: impl AsRef<OsStr>) -> Self {
        let program = program.as_ref();
        let name = std::path::Path::new(program).file_stem().unwrap_or(program).to_string_lossy();
        let endpoint = Endpoint::Process(ProcessConfig::new(program));
        Self { config: Ok(ServerConfig::new(name.into_owned(), endpoint)) }
    }

    /// Creates a server that is reached over streamable HTTP, at a URL such as `https://example.org/mcp`.
    ///
    /// Redirects are followed only within the same host and port. User info and the values of the query appear in no error.
    #[must_use]
    pub fn http(url: impl AsRef<str>) -> Self {
        let config = match url.as_ref().parse::<Url>() {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => {
                let name = url.host_str().unwrap_or_default().to_owned();
                let http = HttpConfig { url: url.clone(), headers: HeaderMap::new(), session: None };
                let mut config = ServerConfig::new(name, Endpoint::Http(http));
                config.redactor.add_url(&url);
                Ok(config)
            }
            _ => Err(McpError::invalid_url()),
        };
        Self { config }
    }

    /// Creates a server that is reached over any pair of streams, such as a socket or a server in this process. The
    /// function connects, and is called again after the connection is lost.
    ///
    /// ```no_run
    /// # #[cfg(unix)] async fn run() -> Result<(), tool_mcp::McpError> {
    /// use tool_mcp::McpServer;
    ///
    /// let tools = McpServer::connector("files", || async {
    ///     let stream = tokio::net::UnixStream::connect("/run/files.sock").await?;
    ///     Ok(stream.into_split())
    /// })
    /// .connect()
    /// .await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn connector<Connecting, Reader, Writer>(
        name: impl Into<String>,
        connect: impl Fn() -> Connecting + Send + Sync + 'static,
    ) -> Self
    where
        Connecting: Future<Output = io::Result<(Reader, Writer)>> + Send + 'static,
        Reader: AsyncRead + Send + 'static,
        Writer: AsyncWrite + Send + 'static,
    {
        let connector = Arc::new(move || {
            let connecting = connect();
            Box::pin(async move {
                let (reader, writer) = connecting.await?;
                Ok(Pipes { reader: Box::pin(reader), writer: Box::pin(writer), process: None })
            }) as std::pin::Pin<Box<dyn Future<Output = io::Result<Pipes>> + Send>>
        });
        Self { config: Ok(ServerConfig::new(name.into(), Endpoint::Connector(connector))) }
    }

    pub(super) fn server_name(&self) -> &str {
        self.config.as_ref().map_or("", |config| &*config.name)
    }

    /// Returns the server as one user has it, which shares nothing with that of another one.
    pub(super) fn for_user(self, user: &RunUser) -> Self {
        self.set(|config| {
            config.user = Some(user.clone());
            config.redactor = config.redactor.separate();
            if let Endpoint::Http(HttpConfig { session: Some(session), .. }) = &mut config.endpoint {
                *session = Arc::new(session.for_user(user.as_str(), config.redactor.clone()));
            }
        })
    }

    pub(super) fn config(&self) -> Result<&ServerConfig, &McpError> {
        self.config.as_ref()
    }

    fn session(&self) -> Result<(&ServerConfig, &Session), McpError> {
        let config = self.config.as_ref().map_err(Clone::clone)?;
        let no_session = || McpError::invalid_config(&config.name, "a login requires `oauth`");
        Ok((config, config.session().ok_or_else(no_session)?))
    }

    fn set(mut self, set: impl FnOnce(&mut ServerConfig)) -> Self {
        if let Ok(config) = &mut self.config {
            set(config);
        }
        self
    }

    /// Records an error that `connect` returns.
    fn fail(self, reason: &str) -> Self {
        let config = self.config.and_then(|config| Err(McpError::invalid_config(&config.name, reason)));
        Self { config }
    }

    /// Sets an option that only a process has.
    fn set_process(mut self, option: &str, set: impl FnOnce(&mut ProcessConfig, &mut ServerConfig)) -> Self {
        let Ok(config) = &mut self.config else { return self };
        let Endpoint::Process(mut process) = config.endpoint.clone() else {
            return self.fail(&format!("`{option}` requires a server created with `McpServer::stdio`"));
        };
        set(&mut process, config);
        config.endpoint = Endpoint::Process(process);
        self
    }

    /// Sets the name of the server in errors and in reports of name conflicts. The default is the name of its program or
    /// host.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        self.set(|config| config.name = name.into())
    }

    /// Adds an argument of the process.
    #[must_use]
    pub fn arg(self, arg: impl Into<OsString>) -> Self {
        self.set_process("arg", |process, _| process.args.push(arg.into()))
    }

    /// Adds arguments of the process.
    #[must_use]
    pub fn args<Arg: Into<OsString>>(self, args: impl IntoIterator<Item = Arg>) -> Self {
        self.set_process("args", |process, _| process.args.extend(args.into_iter().map(Into::into)))
    }

    /// Sets an environment variable of the process. The value may be a secret: it appears in no error and no `Debug` output.
    #[must_use]
    pub fn env(self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.set_process("env", |process, config| {
            let value = value.into();
            config.redactor.add(&value.to_string_lossy());
            process.env.insert(name.into(), value);
        })
    }

    /// Passes an environment variable of this process to the server, if it is set.
    #[must_use]
    pub fn pass_env(self, name: impl Into<OsString>) -> Self {
        let name = name.into();
        match std::env::var_os(&name) {
            Some(value) => self.env(name, value),
            None => self.set_process("pass_env", |_, _| {}),
        }
    }

    /// Sets the working directory of the process. By default, the process inherits this one's.
    #[must_use]
    pub fn current_dir(self, directory: impl Into<PathBuf>) -> Self {
        self.set_process("current_dir", |process, _| process.directory = Some(directory.into()))
    }

    /// Sets a function that receives each line that the process writes to stderr, a line of more than 64 KiB in pieces. The lines are
    /// untrusted and may contain arguments.
    #[must_use]
    pub fn on_stderr(self, hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.set_process("on_stderr", |process, _| process.on_stderr = Some(Arc::new(hook)))
    }

    /// Sets a header of every request. Its value appears in no error and no `Debug` output.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<SecretString>) -> Self {
        let value = value.into();
        let (Ok(name), Ok(mut secret)) =
            (name.parse::<HeaderName>(), HeaderValue::from_str(value.expose_secret()))
        else {
            return self.fail("invalid name or value of a header");
        };
        let Ok(config) = &mut self.config else { return self };
        let Endpoint::Http(http) = &mut config.endpoint else {
            return self.fail("headers and tokens require a server created with `McpServer::http`");
        };
        secret.set_sensitive(true);
        http.headers.insert(name, secret);
        config.redactor.add_header(value.expose_secret());
        self
    }

    /// Sets the token of every request. It is sent only to the server's own host.
    #[must_use]
    pub fn bearer_token(self, token: impl Into<SecretString>) -> Self {
        let token = token.into();
        let value = format!("Bearer {}", token.expose_secret());
        self.header(AUTHORIZATION.as_str(), value)
    }

    /// Obtains tokens for the server by logging in: see [`oauth`](crate::oauth). This replaces [`bearer_token`](Self::bearer_token).
    /// Redirects of the server are not followed.
    ///
    /// A login that is shown to a user starts in [`connect`](Self::connect), and in a call of a tool that the server refuses
    /// because the login has ended or lacks a scope. It is not part of their timeouts. With [`Login::route`](crate::oauth::Login::route),
    /// the run of the call can wait instead, for as long as the user takes: see [`Login::page`](crate::oauth::Login::page).
    #[must_use]
    pub fn oauth(mut self, oauth: OAuth) -> Self {
        let Ok(config) = &mut self.config else { return self };
        let Endpoint::Http(http) = &mut config.endpoint else {
            return self.fail("`oauth` requires a server created with `McpServer::http`");
        };
        match Session::new(oauth, http.url.clone(), config.redactor.clone()) {
            Ok(session) => http.session = Some(Arc::new(session)),
            Err(reason) => return self.fail(reason),
        }
        self
    }

    /// Starts a login whose redirect comes to a [route](crate::oauth::Login::route) of the program. Returns the authorization URL to
    /// which the browser of the user is sent, or `None` if the user is logged in, with all scopes that calls have needed so far, or if the server has
    /// required no login.
    ///
    /// # Errors
    ///
    /// Returns an error if the server is not available or has no `Login::route`, or if its authorization server is refused.
    pub async fn start_login(&self) -> Result<Option<String>, McpError> {
        let (config, session) = self.session()?;
        let failed = |error| McpError::from_oauth_error(&config.name, &error, &config.redactor);
        if !session.is_login_needed() {
            session.forget_token();
            match Connection::open(config, false).await {
                Err(error) if error.kind() == McpErrorKind::LoginRequired => {}
                Ok(_) if session.lacks_scope() || session.recall_challenge().await.map_err(failed)? => {}
                opened => return opened.map(|_| None),
            }
        }
        session.start_for_route().await.map(Some).map_err(failed)
    }

    /// Finishes a login with the URL to which the authorization server redirected the browser, or its path and query. The
    /// user of [`OAuth::user`] must be the one who started it.
    ///
    /// # Errors
    ///
    /// Returns an error if the redirect belongs to no login of this server and user that was started less than five minutes ago and
    /// is not finished, if it comes from another authorization server, or if the user or the server refused.
    pub async fn finish_login(&self, redirect: &str) -> Result<(), McpError> {
        let (config, session) = self.session()?;
        let finished = session.finish(redirect).await;
        finished.map_err(|error| McpError::from_oauth_error(&config.name, &error, &config.redactor))
    }

    /// Ends the login of the user, for all processes that share the store: removes it, and revokes its tokens if the authorization server has an
    /// endpoint for that (RFC 7009). Without one, a process that has a token uses it until it expires.
    ///
    /// # Errors
    ///
    /// Returns an error if the store fails, or if the tokens cannot be revoked, which are removed nevertheless.
    pub async fn log_out(&self) -> Result<(), McpError> {
        let (config, session) = self.session()?;
        let ended = session.log_out().await;
        ended.map_err(|error| McpError::from_oauth_error(&config.name, &error, &config.redactor))
    }

    /// Sets the longest time for a response, and for the list of tools as a whole; 60 seconds by default. For a call, the time
    /// restarts when the server reports progress, up to twenty times the timeout in total. A call that times out is cancelled at
    /// the server.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        self.set(|config| config.timeout = timeout.min(LONGEST_TIMEOUT))
    }

    /// Sets the longest time for connecting, 60 seconds by default, as a process may have to be installed first.
    #[must_use]
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        self.set(|config| config.connect_timeout = timeout)
    }

    /// Lets a server of the revisions 2025-06-18 and 2025-11-25 ask the user during a call, and sets the longest time for an answer, after
    /// which the server reads that the question was cancelled. By default, such servers do not learn that a user can be asked.
    ///
    /// The call stays open at the server, in this process, while its run waits. A run that goes on in another process sends it again, unless
    /// its tool is [`at_most_once`](tool_core::model::ToolPolicy::at_most_once). A question that arrives while several calls of the
    /// server are in flight is cancelled, because the server does not state to which it belongs. So it is after a call that timed out or
    /// was dropped, until the server answers that call or this time is over. Newer servers need no open call.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tool_mcp::McpServer;
    ///
    /// let server = McpServer::stdio("my-server").question_timeout(Duration::from_secs(30 * 60));
    /// # let _ = server;
    /// ```
    #[must_use]
    pub fn question_timeout(self, timeout: Duration) -> Self {
        self.set(|config| config.question_timeout = Some(timeout.min(LONGEST_TIMEOUT)))
    }

    /// Connects to the server in the way of the revision 2025-11-25, also if it speaks a newer one. Some servers speak both, but their tools
    /// ask the user in the older way alone, such as those of FastMCP with `ctx.elicit`. With [`question_timeout`](Self::question_timeout), they can.
    ///
    /// A server that has no older revision is connected all the same. A server that needs a page to be opened before a call (error -32042) gets the
    /// call again once a person has consented.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tool_mcp::McpServer;
    ///
    /// let server = McpServer::stdio("my-server").older_revision().question_timeout(Duration::from_secs(30 * 60));
    /// # let _ = server;
    /// ```
    #[must_use]
    pub fn older_revision(self) -> Self {
        self.set(|config| config.is_older = true)
    }

    /// Limits the size of each message from the server and of the list of its tools as a whole, to 16 MiB by default. More is
    /// an error.
    #[must_use]
    pub fn max_message_bytes(self, bytes: usize) -> Self {
        self.set(|config| config.max_message_bytes = bytes)
    }

    /// Limits the number of tools, to 2000 by default. A server that lists more is refused.
    #[must_use]
    pub fn max_tools(self, tools: usize) -> Self {
        self.set(|config| config.max_tools = tools)
    }

    /// Limits the output of each call that is sent to the model, to 100,000 characters by default. See
    /// [`ToolOutput::truncated`](tool_core::ToolOutput::truncated).
    #[must_use]
    pub fn max_output_chars(self, characters: usize) -> Self {
        self.set(|config| config.max_output_chars = characters)
    }

    /// Adds the tools `list_resources` and `read_resource`, by which the model lists and reads the server's documents and data, if it has
    /// any. They need approval like the others, and are part of the [fingerprint](Self::pinned). Tools of the server with these names
    /// are left out.
    ///
    /// At most 1,000 resources and templates are listed. The model can read those that are listed, and URIs that begin like a template, up to its
    /// first variable, without `..`; the server decides about them. Texts and images are contents of the output, like those of
    /// tools, and as untrusted. Responses are stored with the connection as long as the server allows. A read that asks the user
    /// for input fails.
    ///
    /// ```
    /// use tool_mcp::McpServer;
    ///
    /// let server = McpServer::stdio("my-server").resources().approved(["list_resources", "read_resource"]);
    /// # let _ = server;
    /// ```
    #[must_use]
    pub fn resources(self) -> Self {
        self.set(|config| config.lists_resources = true)
    }

    /// Makes the server optional: [`connect`](Self::connect) succeeds even if the server is unavailable, and the server has
    /// no tools until it becomes available.
    #[must_use]
    pub fn optional(self) -> Self {
        self.set(|config| config.is_optional = true)
    }

    /// Lets calls of the named tools run without approval. The names are those that the server gives its tools.
    ///
    /// A server can give any tool such a name: [`pinned`](Self::pinned) ensures that it is the one that was reviewed.
    ///
    /// ```
    /// use tool_mcp::McpServer;
    ///
    /// let server = McpServer::stdio("my-server").approved(["search", "read_file"]);
    /// # let _ = server;
    /// ```
    #[must_use]
    pub fn approved<Name: Into<String>>(self, tools: impl IntoIterator<Item = Name>) -> Self {
        self.set(|config| config.trust.approved.extend(tools.into_iter().map(Into::into)))
    }

    /// Sets the rule that decides which tools need a person's approval for each call, except those that are
    /// [`approved`](Self::approved). By default, all do.
    ///
    /// ```
    /// use tool_mcp::McpServer;
    ///
    /// let server = McpServer::stdio("my-server").needs_approval(|tool| !tool.name().starts_with("get_"));
    /// # let _ = server;
    /// ```
    #[must_use]
    pub fn needs_approval(self, needs: impl Fn(&McpTool) -> bool + Send + Sync + 'static) -> Self {
        self.set(|config| config.trust.needs_approval = Some(Arc::new(needs)))
    }

    /// Trusts the annotations of the tools, for a server whose author is trusted to describe them correctly.
    ///
    /// Unless a rule is set with [`needs_approval`](Self::needs_approval), they decide about approval. An annotation that is
    /// absent has the default of the protocol, except that reading needs approval only if the world is stated to be open:
    ///
    /// | `readOnlyHint` | `destructiveHint` | `openWorldHint` | approval |
    /// | --- | --- | --- | --- |
    /// | `true` | `true` (a contradiction) | any | needed |
    /// | `true` | `false` or absent | `true`: the arguments leave the server | needed |
    /// | `true` | `false` or absent | `false` or absent | not needed |
    /// | `false` or absent | `true` or absent | any | needed |
    /// | `false` or absent | `false`: it only adds | `true` or absent: it sends a mail, for example | needed |
    /// | `false` or absent | `false`: it only adds | `false` | not needed |
    ///
    /// A call that was in flight when the connection was lost is repeated if its tool is
    /// [read-only or idempotent](McpTool::is_idempotent). Without this trust, no such call is repeated, and all tools are
    /// [`at_most_once`](tool_core::model::ToolPolicy::at_most_once).
    #[must_use]
    pub fn trust_annotations(self) -> Self {
        self.set(|config| config.trust.trusts_annotations = true)
    }

    /// Lets all calls run without approval and [trusts the annotations](Self::trust_annotations), for a server that is trusted
    /// like the program itself.
    #[must_use]
    pub fn trusted(self) -> Self {
        self.needs_approval(|_| false).trust_annotations()
    }

    /// Refuses the server if its tools or instructions differ from the fingerprint.
    ///
    /// A connection is used only after its own list of tools was compared with the fingerprint: at first, after a reconnection
    /// or a new session, before a call is repeated, and after each change that the server reports. If the list cannot be
    /// requested, calls fail. A change in the middle of a run ends the run with an error whose
    /// [`difference`](McpError::difference) describes it; its message names the changed tools, but does not quote the server,
    /// because a model may read it.
    ///
    /// [`McpTools::fingerprint`] creates a fingerprint, after a person has reviewed the tools.
    #[must_use]
    pub fn pinned(self, fingerprint: Fingerprint) -> Self {
        self.set(|config| config.pinned = Some(Arc::new(fingerprint)))
    }

    /// Sets a function that receives the log messages of the server. They are untrusted and may contain arguments.
    #[must_use]
    pub fn on_log(self, hook: impl Fn(&McpLog) + Send + Sync + 'static) -> Self {
        self.set(|config| config.on_log = Some(Arc::new(hook)))
    }

    /// Lets the SDK record its messages, with arguments and outputs, in the `tracing` records of the program.
    ///
    /// By default, the SDK runs on threads that discard its records. As soon as the first of them has started, the feature `log` of
    /// `tracing` forwards nothing more to a logger, as with any subscriber. With this option for all connections and servers of
    /// a process, there are no such threads.
    #[must_use]
    pub fn record_messages(self) -> Self {
        self.set(|config| config.records_messages = true)
    }

    /// Connects and requests the tools. A connection that is lost later is restored, with increasing delays between the
    /// attempts.
    ///
    /// The tools of a server with a login serve runs of the user of that login, [`OAuth::user`], and runs without a user, but no run of another
    /// user. Use [`per_user`](Self::per_user) for a program with many users.
    ///
    /// This requires a tokio runtime with time and I/O enabled. It spawns tasks that run as long as the tools are in use.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration is invalid or the server differs from the [pinned](Self::pinned) fingerprint. Unless the
    /// server is [`optional`](Self::optional), it is also an error if the server is unavailable, does not respond in time,
    /// cannot list its tools, or requires a login that fails or does not start here.
    pub async fn connect(self) -> Result<McpTools, McpError> {
        let config = self.config?;
        let mut logins = 0;
        loop {
            let connected = connect_once(config.clone()).await;
            let error = match &connected {
                Ok(tools) => tools.last_error(),
                Err(error) => Some(error.clone()),
            };
            let Some(error) = error else { return connected };
            // If nobody logs in, an optional server is one that is not available.
            if let Err(error) = config.log_in(error, &mut logins, false).await {
                return connected.map_err(|_| error);
            }
        }
    }
}

async fn connect_once(config: ServerConfig) -> Result<McpTools, McpError> {
    let tools = McpTools::new(Arc::new(ConnectionManager::start(config).await?));
    tools.tools().await?;
    Ok(tools)
}

/// Shows only the name of the server, because arguments and headers may be secrets.
impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServer").field("name", &self.server_name()).finish_non_exhaustive()
    }
}
