//! How to reach a server, and how far it is trusted.

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

use super::child::{Pipes, Process};
use super::http::Http;
use super::live::Live;
use super::settings::{Place, Settings};
use super::{Fingerprint, McpError, McpLog, McpTool, McpTools};

/// An MCP server whose tools are wanted: where it is, and how far it is trusted.
///
/// A server is not trusted. Unless something else is said here: a process gets only the variables that are named; calls of
/// tools that may destroy something, as [`McpTool::is_destructive`] has it, need a person's approval; what it answers is
/// bounded in time and size. [`pinned`](Self::pinned) refuses a server that says other things of its tools than it did.
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
    settings: Result<Settings, McpError>,
}

impl McpServer {
    /// A server that is started as a child process and spoken to over its input and output.
    ///
    /// The process gets [`args`](Self::args) and, of the environment, `HOME`, `LOGNAME`, `PATH`, `SHELL`, `TERM` and `USER` (on
    /// Windows `APPDATA`, `HOMEDRIVE`, `HOMEPATH`, `LOCALAPPDATA`, `PATH`, `PATHEXT`, `PROCESSOR_ARCHITECTURE`, `SYSTEMDRIVE`,
    /// `SYSTEMROOT`, `TEMP`, `USERNAME` and `USERPROFILE`), and what [`env`](Self::env) and [`pass_env`](Self::pass_env) name.
    /// What it writes to its stderr is dropped, unless [`on_stderr`](Self::on_stderr) takes it.
    #[must_use]
    pub fn stdio(program: impl AsRef<OsStr>) -> Self {
        let program = program.as_ref();
        let name = std::path::Path::new(program).file_stem().unwrap_or(program).to_string_lossy();
        Self { settings: Ok(Settings::new(name.into_owned(), Place::Process(Process::new(program)))) }
    }

    /// A server behind streamable HTTP, such as `https://example.org/mcp`.
    ///
    /// Redirects are followed within the same host and port only.
    #[must_use]
    pub fn http(url: impl AsRef<str>) -> Self {
        let settings = match url.as_ref().parse::<Url>() {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => {
                let name = url.host_str().unwrap_or_default().to_owned();
                Ok(Settings::new(name, Place::Http(Http { url, headers: HeaderMap::new() })))
            }
            // What is wrong with it stays out of the message: it may hold a password.
            _ => Err(McpError::config("", "its URL is none; write one such as `https://example.org/mcp`")),
        };
        Self { settings }
    }

    /// A server over any pair of streams, such as a socket or a server in this process. The function connects; it is called
    /// again when the connection is lost.
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
                Ok(Pipes { reader: Box::pin(reader), writer: Box::pin(writer) })
            }) as std::pin::Pin<Box<dyn Future<Output = io::Result<Pipes>> + Send>>
        });
        Self { settings: Ok(Settings::new(name.into(), Place::Connector(connector))) }
    }

    fn set(mut self, set: impl FnOnce(&mut Settings)) -> Self {
        if let Ok(settings) = &mut self.settings {
            set(settings);
        }
        self
    }

    fn fail(self, what: &str) -> Self {
        let settings = self.settings.and_then(|settings| Err(McpError::config(&settings.name, what)));
        Self { settings }
    }

    /// Sets what only a process has.
    fn process(mut self, word: &str, set: impl FnOnce(&mut Process, &mut Settings)) -> Self {
        let Ok(settings) = &mut self.settings else { return self };
        let Place::Process(mut process) = settings.place.clone() else {
            return self.fail(&format!("`{word}` is for a server over `stdio`"));
        };
        set(&mut process, settings);
        settings.place = Place::Process(process);
        self
    }

    /// What the server is called in errors and where tools clash; the name of its program or host if nothing else is said.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        self.set(|settings| settings.name = name.into())
    }

    /// One more argument of the process.
    #[must_use]
    pub fn arg(self, arg: impl Into<OsString>) -> Self {
        self.process("arg", |process, _| process.args.push(arg.into()))
    }

    /// More arguments of the process.
    #[must_use]
    pub fn args<Arg: Into<OsString>>(self, args: impl IntoIterator<Item = Arg>) -> Self {
        self.process("args", |process, _| process.args.extend(args.into_iter().map(Into::into)))
    }

    /// A variable of the process, which may be a secret: no error and no `Debug` shows its value.
    #[must_use]
    pub fn env(self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.process("env", |process, settings| {
            let value = value.into();
            settings.secrets.add(&value.to_string_lossy());
            process.env.insert(name.into(), value);
        })
    }

    /// A variable of this process that the server gets, too, if it is set.
    #[must_use]
    pub fn pass_env(self, name: impl Into<OsString>) -> Self {
        let name = name.into();
        match std::env::var_os(&name) {
            Some(value) => self.env(name, value),
            None => self.process("pass_env", |_, _| {}),
        }
    }

    /// Where the process runs; where this one does if nothing is said.
    #[must_use]
    pub fn current_dir(self, directory: impl Into<PathBuf>) -> Self {
        self.process("current_dir", |process, _| process.directory = Some(directory.into()))
    }

    /// Takes the lines that the process writes to its stderr. They are a stranger's, and may tell of arguments.
    #[must_use]
    pub fn on_stderr(self, hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.process("on_stderr", |process, _| process.on_stderr = Some(Arc::new(hook)))
    }

    /// A header of every request. No error and no `Debug` shows its value.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<SecretString>) -> Self {
        let value = value.into();
        let (Ok(name), Ok(mut secret)) =
            (name.parse::<HeaderName>(), HeaderValue::from_str(value.expose_secret()))
        else {
            return self.fail("a header has a name or a value that headers cannot have");
        };
        let Ok(settings) = &mut self.settings else { return self };
        let Place::Http(http) = &mut settings.place else {
            return self.fail("headers and tokens are for a server over `http`");
        };
        secret.set_sensitive(true);
        http.headers.insert(name, secret);
        settings.secrets.add(value.expose_secret());
        self
    }

    /// The token of every request, sent to the server's own host only.
    #[must_use]
    pub fn bearer_token(self, token: impl Into<SecretString>) -> Self {
        let token = token.into();
        let value = format!("Bearer {}", token.expose_secret());
        self.set(|settings| settings.secrets.add(token.expose_secret())).header(AUTHORIZATION.as_str(), value)
    }

    /// How long an answer may take: a minute if nothing is said. For a call the time begins anew when the server tells of
    /// progress, up to twenty times as long in all. The server is told that the call is given up.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        self.set(|settings| settings.timeout = timeout)
    }

    /// How long it may take until the server is there: a minute if nothing is said, as a process may be installed first.
    #[must_use]
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        self.set(|settings| settings.connect_timeout = timeout)
    }

    /// How large a message of the server may be, in bytes: 16 MiB if nothing is said. An answer that is larger fails.
    #[must_use]
    pub fn max_message(self, bytes: usize) -> Self {
        self.set(|settings| settings.max_message = bytes)
    }

    /// How many tools the server may list: 2000 if nothing is said. One with more is refused.
    #[must_use]
    pub fn max_tools(self, tools: usize) -> Self {
        self.set(|settings| settings.max_tools = tools)
    }

    /// How many characters of what a call gives back the model reads at most: 100,000 if nothing is said. See
    /// [`ToolOutput::truncated`](tool_core::ToolOutput::truncated).
    #[must_use]
    pub fn max_output_chars(self, characters: usize) -> Self {
        self.set(|settings| settings.max_output_chars = characters)
    }

    /// The program goes on without the server: [`connect`](Self::connect) does not fail if it is not there, and it has no tools
    /// until it is.
    #[must_use]
    pub fn optional(self) -> Self {
        self.set(|settings| settings.is_optional = true)
    }

    /// Says which tools need a person's approval for each call, in the place of
    /// [`McpTool::is_destructive`].
    ///
    /// ```
    /// use tool_mcp::McpServer;
    ///
    /// let server = McpServer::stdio("my-server").needs_approval(|tool| tool.name() != "search");
    /// # let _ = server;
    /// ```
    #[must_use]
    pub fn needs_approval(self, needs: impl Fn(&McpTool) -> bool + Send + Sync + 'static) -> Self {
        self.set(|settings| settings.needs_approval = Arc::new(needs))
    }

    /// No call needs a person's approval: for a server that is trusted as one's own code is.
    #[must_use]
    pub fn trusted(self) -> Self {
        self.needs_approval(|_| false)
    }

    /// The server is refused if its tools are not those of the fingerprint, with what changed: when it is connected to, and
    /// whenever it says that its tools changed, also in the middle of a run, which then ends.
    ///
    /// [`McpTools::fingerprint`] makes one, when somebody has looked at the tools.
    #[must_use]
    pub fn pinned(self, fingerprint: Fingerprint) -> Self {
        self.set(|settings| settings.pinned = Some(Arc::new(fingerprint)))
    }

    /// Takes what the server logs by the protocol. It is a stranger's, and may tell of arguments.
    #[must_use]
    pub fn on_log(self, hook: impl Fn(&McpLog) + Send + Sync + 'static) -> Self {
        self.set(|settings| settings.on_log = Some(Arc::new(hook)))
    }

    /// Connects, and asks for the tools. Whenever the connection is lost from then on, it is made again, later and later.
    ///
    /// It takes a tokio runtime with time and I/O, in which it starts tasks that live as long as the tools.
    ///
    /// # Errors
    ///
    /// The server is not set up rightly, or its tools are not the [pinned](Self::pinned) ones. If it is not
    /// [`optional`](Self::optional), also: it is not there, does not answer in time, or cannot tell its tools.
    pub async fn connect(self) -> Result<McpTools, McpError> {
        let settings = self.settings?;
        let tools = McpTools::new(Live::start(settings).await?);
        tools.tools().await?;
        Ok(tools)
    }
}

/// Names the server and nothing else: arguments and headers may be secrets.
impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.settings.as_ref().map_or("", |settings| &*settings.name);
        f.debug_struct("McpServer").field("name", &name).finish_non_exhaustive()
    }
}
