//! One's own tools for any MCP host: a desktop application, an editor, an agent in any language.
//!
//! ```no_run
//! use tool_core::{tool, tools};
//! use tool_mcp::server::serve_stdio;
//!
//! /// Sums two numbers.
//! #[tool]
//! fn sum(a: f64, b: f64) -> f64 {
//!     a + b
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), tool_mcp::server::ServerError> {
//!     serve_stdio(tools![sum]).await
//! }
//! ```
//!
//! [`Server`] says more of the server, and serves over HTTP.
//!
//! # What a host sees of a tool
//!
//! Name, description and schema are those of the tool's definition, in the order of the set. The annotations come of the
//! tool's words; of what is not said, the protocol's default holds:
//!
//! | word | annotation |
//! | --- | --- |
//! | `pure` | `readOnlyHint: true`, `destructiveHint: false`, `idempotentHint: true`, `openWorldHint: false` |
//! | `needs_approval` | `readOnlyHint: false`, `destructiveHint: true`; the tool is [not served](Server::allow_unapproved) by itself |
//! | `undo = …` | `readOnlyHint: false`, `destructiveHint: false` |
//! | `at_most_once` | `readOnlyHint: false`, `idempotentHint: false` |
//! | `timeout`, `attempts`, `exclusive`, `max_output_chars` | none: they are kept here, for every call |
//!
//! Where two words say different things, the more careful one holds. An output schema is
//! [given by type](Server::output_schema).
//!
//! # What comes back of a call
//!
//! | the tool gives | the host reads |
//! | --- | --- |
//! | a text | a text |
//! | a value | its JSON as a text; an object, and what an [output schema](Server::output_schema) describes, also as structured content |
//! | a picture of bytes | an image |
//! | a picture at a URL | a link to it |
//! | an error, also of wrong arguments | the error's text, with `isError` |
//! | a panic | that the tool failed, with `isError`; the panic's text stays here |
//!
//! A call of a tool that is not there is an error of the protocol (-32602). [Data](tool_core::ToolOutput::data) for the
//! application goes nowhere.
//!
//! A tool's [progress](tool_core::Progress) is told if the host asks for it. A call that the host cancels, or whose
//! connection ends, is dropped, and its [`CancellationToken`](tool_core::CancellationToken) says so. An `exclusive` tool runs beside no
//! other call of the server, whoever made it. A host that sets a level of logging is told of calls that begin, end and
//! fail, by the names of the tools.
//!
//! # Standard output
//!
//! Over stdio, the standard output is the protocol's alone. On Unix, [`serve_stdio`] keeps it to itself: what the program and
//! its child processes print goes to standard error from then on, and their standard input is empty. Elsewhere
//! a tool must not print, and must not let a child process.

mod annotations;
mod call;
mod error;
mod guard;
mod live;
mod log;
mod offer;
mod output;
mod progress;
mod running;
mod session;
mod sessions;
mod settings;
mod stdio;
mod stopping;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use rmcp::model::Implementation;
use rmcp::service::serve_server;
use secrecy::SecretString;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::ToSocketAddrs;
use tool_core::schemars::JsonSchema;
use tool_core::{Approver, ToolContext, ToolSet};

pub use self::error::ServerError;
pub use self::live::LiveTools;
use self::output::OutputSchema;
pub use self::running::RunningServer;
use self::session::{Session, Shared};
use self::settings::Settings;
use self::stopping::Stopping;

/// Serves tools over standard input and output, until the input ends: what a host that starts the program itself speaks.
/// [`Server::serve_stdio`] is the same with more to say.
///
/// # Errors
///
/// A tool takes a value from its context, or what came first was not of the protocol.
pub async fn serve_stdio(tools: impl Into<ToolSet>) -> Result<(), ServerError> {
    Server::new(tools).serve_stdio().await
}

/// Tools for any MCP host, over stdio or HTTP.
///
/// ```
/// use tool_core::{tool, tools};
/// use tool_mcp::server::Server;
///
/// /// Sums two numbers.
/// #[tool]
/// fn sum(a: f64, b: f64) -> f64 {
///     a + b
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::new(tools![sum]).name("calculator").bearer_token("secret").spawn("127.0.0.1:0").await?;
/// println!("a host connects to {}", server.url());
/// server.stop().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is served until it is spawned, or its router or a stream is served"]
pub struct Server {
    tools: LiveTools,
    settings: Settings,
}

impl Server {
    /// A server of these tools.
    pub fn new(tools: impl Into<ToolSet>) -> Self {
        Self { tools: LiveTools::new(tools.into()), settings: Settings::default() }
    }

    /// The server's name for programs; the program's own unless it is set.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.about.name = name.into();
        self
    }

    /// The server's version; that of this crate unless it is set.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.settings.about.version = version.into();
        self
    }

    /// The server's name for people.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.settings.about.title = Some(title.into());
        self
    }

    /// What a model should know of the tools as a whole; most hosts put it into their system prompt.
    pub fn instructions(mut self, instructions: impl Into<String>) -> Self {
        self.settings.instructions = Some(instructions.into());
        self
    }

    /// What tools take from their context, by `#[inject]`. That they lack nothing is looked at before anything is served.
    pub fn context(mut self, context: ToolContext) -> Self {
        self.settings.context = context;
        self
    }

    /// What a tool gives back, by type: the host is told its schema, and gets the value as structured content. A value that is
    /// no JSON object, such as a number or a list, comes as the `result` of one.
    ///
    /// ```
    /// use tool_core::{schemars, tool, tools};
    /// use tool_mcp::server::Server;
    ///
    /// #[derive(serde::Serialize, schemars::JsonSchema)]
    /// struct Weather {
    ///     celsius: f64,
    /// }
    ///
    /// #[tool("Tells the weather")]
    /// fn weather(city: String) -> Result<Weather, String> {
    ///     Ok(Weather { celsius: 22.5 })
    /// }
    ///
    /// let server = Server::new(tools![weather]).output_schema::<Weather>("weather");
    /// # let _ = server;
    /// ```
    pub fn output_schema<T: JsonSchema + 'static>(mut self, tool: impl Into<String>) -> Self {
        self.settings.output_schemas.insert(tool.into(), OutputSchema::of::<T>());
        self
    }

    /// Serves tools that need approval like all others: the host is trusted to ask a person. Without this and without an
    /// [approver](Self::approver) they are not served.
    pub fn allow_unapproved(mut self) -> Self {
        self.settings.allows_unapproved = true;
        self
    }

    /// Serves tools that need approval, and asks before each of their calls. Where it decides
    /// [`Defer`](tool_core::Approval::Defer) the call is denied, as nobody keeps it.
    ///
    /// ```
    /// use tool_core::{Approval, ToolCall, tool, tools};
    /// use tool_mcp::server::Server;
    ///
    /// #[tool("Deletes a file", needs_approval)]
    /// fn delete(path: String) {}
    ///
    /// let server = Server::new(tools![delete]).approver(|call: &ToolCall| match call.arguments.contains("..") {
    ///     true => Approval::deny("outside the directory"),
    ///     false => Approval::Approve,
    /// });
    /// # let _ = server;
    /// ```
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.settings.approver = Some(Arc::new(approver));
        self
    }

    /// How many tools a host gets at once when it lists them; 100 unless it is set, and at least 1.
    pub fn page_size(mut self, tools: usize) -> Self {
        self.settings.page_size = tools.max(1);
        self
    }

    /// Over HTTP, asks for this bearer token; called again, one of these tokens will do. It is shown nowhere.
    pub fn bearer_token(mut self, token: impl Into<SecretString>) -> Self {
        self.settings.http.tokens.push(token.into());
        self
    }

    /// Over HTTP, answers requests for this host, too, such as `tools.example.org` or `tools.example.org:8080`: others than the
    /// loopback ones are refused, as a page in a browser could reach the server by a name of its own.
    pub fn allow_host(mut self, host: impl Into<String>) -> Self {
        self.settings.http.hosts.push(host.into());
        self
    }

    /// Over HTTP, answers pages of this origin in a browser, too, such as `https://app.example.org:443`, or with `:*` for any
    /// port: others than the loopback ones are refused. Who is no browser has no origin.
    pub fn allow_origin(mut self, origin: impl Into<String>) -> Self {
        self.settings.http.origins.push(origin.into());
        self
    }

    /// Lets [`spawn`](Self::spawn) bind to an address that other machines reach. Its [host](Self::allow_host) has to be allowed,
    /// too; and ask for a [token](Self::bearer_token), or put something in front that does.
    pub fn allow_remote(mut self) -> Self {
        self.settings.http.allows_remote = true;
        self
    }

    /// How long a request over HTTP may be, in bytes; 4 MiB unless it is set.
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.settings.http.longest_body = bytes;
        self
    }

    /// How long a client over HTTP may be silent in the middle of a request; 30 seconds unless it is set.
    pub fn read_timeout(mut self, time: Duration) -> Self {
        self.settings.http.read_timeout = time;
        self
    }

    /// How many sessions there may be over HTTP at once, and after what time without a message one ends; 1000 and an hour unless
    /// it is set. One more is told to come back later. (Clients of the newest protocol have no sessions.)
    pub fn sessions(mut self, number: usize, idle: Duration) -> Self {
        (self.settings.http.most_sessions, self.settings.http.longest_idle) = (number, idle);
        self
    }

    /// A handle by which the tools are replaced while they are served.
    #[must_use]
    pub fn live_tools(&self) -> LiveTools {
        self.tools.clone()
    }

    /// Serves over standard input and output until the input ends. Calls that are under way then have 5 seconds.
    ///
    /// # Errors
    ///
    /// A tool lacks a value of its context, an [output schema](Self::output_schema) is of no tool, or what came first was not
    /// of the protocol.
    pub async fn serve_stdio(self) -> Result<(), ServerError> {
        let shared = self.shared(Stopping::never())?;
        let (input, output) = stdio::streams()?;
        serve(shared, input, output).await
    }

    /// Serves one client over any pair of streams, as over [stdio](Self::serve_stdio), until the input ends.
    ///
    /// # Errors
    ///
    /// As for [`serve_stdio`](Self::serve_stdio).
    pub async fn serve_streams(
        self,
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Result<(), ServerError> {
        serve(self.shared(Stopping::never())?, input, output).await
    }

    /// The route `/mcp` of streamable HTTP, for a server of one's own.
    ///
    /// ```
    /// # use tool_core::tools;
    /// # fn main() -> Result<(), tool_mcp::server::ServerError> {
    /// let app: axum::Router = tool_mcp::server::Server::new(tools![]).router()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// A tool lacks a value of its context, or an [output schema](Self::output_schema) is of no tool.
    pub fn router(self) -> Result<Router, ServerError> {
        self.router_until(Stopping::never())
    }

    fn router_until(self, stopping: Stopping) -> Result<Router, ServerError> {
        let http = self.settings.http.clone();
        Ok(guard::router(self.shared(stopping)?, http))
    }

    /// Serves over HTTP in the background, on a Tokio runtime, until what is returned is dropped.
    ///
    /// # Errors
    ///
    /// As for [`router`](Self::router); or the address cannot be bound, or is not a loopback one and
    /// [`allow_remote`](Self::allow_remote) was not said.
    pub async fn spawn(self, address: impl ToSocketAddrs) -> Result<RunningServer, ServerError> {
        let http = self.settings.http.clone();
        let addresses: Vec<_> =
            tokio::net::lookup_host(address).await.map_err(ServerError::address)?.collect();
        if !http.allows_remote
            && let Some(remote) = addresses.iter().find(|address| !address.ip().is_loopback())
        {
            return Err(ServerError::remote(*remote));
        }
        let stopping = Stopping::new();
        let router = self.router_until(stopping.clone())?;
        let listener = tokio::net::TcpListener::bind(&addresses[..]).await.map_err(ServerError::address)?;
        RunningServer::start(listener, router, http.read_timeout, stopping).map_err(ServerError::address)
    }

    fn shared(self, stopping: Stopping) -> Result<Arc<Shared>, ServerError> {
        self.tools.start(&self.settings)?;
        Ok(Arc::new(Shared::new(self.tools, self.settings, stopping)))
    }
}

async fn serve(
    shared: Arc<Shared>,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<(), ServerError> {
    let running = match serve_server(Session::new(shared), (input, output)).await {
        Ok(running) => running,
        // Somebody who connects and says nothing has made no mistake.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(ServerError::not_begun(error)),
    };
    running.waiting().await.map(drop).map_err(ServerError::ended)
}

/// Names the tools, never a token.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Implementation { name, version, .. } = &self.settings.about;
        f.debug_struct("Server")
            .field("name", name)
            .field("version", version)
            .field("tools", &self.tools)
            .finish_non_exhaustive()
    }
}
