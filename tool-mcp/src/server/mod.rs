//! Serves tools to any MCP host: a desktop application, an editor, an agent in any language.
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
//! [`Server`] has all options, and serves over HTTP as well.
//!
//! # Definitions
//!
//! Hosts receive the name, description and schema of each tool's definition, in the order of the set. The annotations follow
//! from the tool's options; without an option, the default of the protocol applies:
//!
//! | option | annotations |
//! | --- | --- |
//! | `pure` | `readOnlyHint: true`, `destructiveHint: false`, `idempotentHint: true`, `openWorldHint: false` |
//! | `needs_approval` | `readOnlyHint: false`, `destructiveHint: true`; by default, the tool is [not served](Server::allow_unapproved) |
//! | `undo = …` | `readOnlyHint: false`, `destructiveHint: false` |
//! | `at_most_once` | `readOnlyHint: false`, `idempotentHint: false` |
//! | `timeout`, `attempts`, `exclusive`, `max_output_chars` | none: the server enforces them on every call |
//!
//! If two options disagree, the more cautious one applies. An output schema is [set by type](Server::output_schema).
//!
//! # Results
//!
//! | the tool returns | the host receives |
//! | --- | --- |
//! | text | text |
//! | a value | its JSON as text; an object, or a value with an [output schema](Server::output_schema), also as structured content |
//! | an image of bytes | an image |
//! | an image at a URL | a link to it |
//! | an error, including invalid arguments | the text of the error, with `isError` |
//! | a panic | the information that the tool failed, with `isError`, without the text of the panic |
//!
//! A call of an unknown tool is a protocol error (-32602). [Data](tool_core::ToolOutput::data) for the application is not sent.
//!
//! The [progress](tool_core::tool::Progress) of a tool is sent if the host requests it. A call that the host cancels, or whose
//! connection ends, is dropped, and its [`CancellationToken`](tool_core::CancellationToken) is cancelled. An `exclusive` tool
//! runs alongside no other call of the server, whichever host made it. A host that sets a log level is notified when calls start,
//! finish and fail, with the names of the tools.
//!
//! # Questions
//!
//! A tool that [asks](tool_core::tool::Asker) asks the user of a host that has declared `elicitation`. The call
//! ends with the questions, and the host calls again with the answers and a state that only this process opens, for the same caller, tool and arguments,
//! within 10 minutes, and once. The tool is then executed again from its start, and its questions return the answers.
//!
//! A host of a revision before 2026-07-28 is asked by a request of the server (`elicitation/create`) while its call stays open, for 10 minutes a question,
//! in at most 64 calls of one caller at a time, and 512 of all. Nothing else is different.
//!
//! | | |
//! | --- | --- |
//! | a text, a number, a boolean, an enum, a list of variants of an enum, choices, a struct of these | a form |
//! | another answer, a [secret](tool_core::signatures::PendingQuestion::secret), a host without forms | the question fails with the reason, or takes its default |
//! | decline, cancel | [`AskErrorKind::Declined`](tool_core::tool::AskErrorKind::Declined) |
//! | no answer, or one that does not match | asked for again, at most 10 times in a call |
//! | a state that is invalid, expired, used or of another call | a protocol error (-32602) with `reason: "invalid_request_state"` |
//!
//! Hosts are not asked for approval. A call that is [parked](tool_core::tool::Asker::park) continues by itself while the host waits.
//!
//! # Tasks
//!
//! With [`Server::tasks`], a call of a host that follows tasks (the extension `io.modelcontextprotocol/tasks`) becomes one if it has to wait for something
//! other than the user of the host, or [takes long](Server::long_call). It is then a stored run, driven by this process or another one that
//! serves the same store:
//!
//! | the call waits for | the host reads |
//! | --- | --- |
//! | an approval, or an answer that no host is asked for | `working`, until a person of this service decides, on a page or by [`Agent::decide`] |
//! | a time for which it is parked, or its end | `working` |
//! | an answer of the host's user | `input_required`; it sends the answer by `tasks/update` |
//!
//! The result is the same as that of a call, but what a panic and a tool that no longer exists result in is an error of the protocol. A task belongs to the
//! caller that began it: for others it does not exist. Each request needs the [scopes](Server::scope) of the tool. `tasks/cancel` cancels
//! the call, and undoes it if its tool can be undone. A `tools/call` that is cancelled before it is answered leaves no task; after that, only `tasks/cancel`
//! cancels it. A task is kept [for a day](Server::task_lifetime) after its last change. Its output has at most 262,144 characters, and 4 MiB with images and
//! data; others are left out. Tools
//! inject the [`RunUser`], and its [`Principal`]: without scopes where the call goes on without the request that began it.
//!
//! A server that [stops](RunningServer::stop) waits for the tasks that run as for other calls, and starts no more. What it has not started, or interrupts, is
//! continued by the next one that serves the store, as soon as that starts; calls that were interrupted are repeated, unless their tools are `at_most_once`.
//! Calls that are parked or have asked belong to the definition of their tool: with a new one, also a new description, they end with an error.
//!
//! A call of an `exclusive` tool waits for calls of others to end. Meanwhile it holds back the calls after it, for at most 30 seconds at a time, and lets
//! them pass for as long in between. While calls that take longer overlap, it does not get its turn. Agents among the tools do not share the lock of `exclusive` tools.
//!
//! # Traces
//!
//! The SDK records arguments, outputs and ids of sessions. It runs on threads of its own, whose `tracing` records are
//! discarded, unless the program [asks for them](Server::record_messages). Tools run in the runtime that serves them, and their
//! records reach the program's subscriber.
//!
//! # Access over HTTP
//!
//! Every program on the machine can call a server without a [token](Server::bearer_token). Web pages cannot, with or without one:
//! requests must be for an [allowed host](Server::allow_host), and come from no web page or one of an
//! [allowed origin](Server::allow_origin). With several tokens, a session belongs to the token that began it, and requests with
//! another token cannot use it. [`Server::user`] says whose each call is. With [`Server::protect`], the application verifies tokens, and tools
//! can need [scopes](Server::scope).
//!
//! # Standard output
//!
//! Over stdio, standard output belongs to the protocol. On Unix, [`serve_stdio`] takes it over: from then on, output of the
//! program and its child processes goes to standard error, and their standard input is empty. On other platforms, tools and
//! their child processes must not print.

mod annotations;
mod output;
mod authorize;
mod protected_resource;
mod error;
mod decider;
mod config;
mod form;
mod task_id;
mod sealed_state;
mod questions;
mod exclusivity;
mod call;
mod task_model;
mod shares;
mod tools_handle;
mod catalog;
mod served_tools;
mod task_driver;
mod found_task;
mod tasks;
mod log;
mod progress;
mod handler;
mod session_manager;
mod guard;
mod stdio;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::HeaderMap;
use rmcp::model::Implementation;
use rmcp::service::{ServerInitializeError, serve_server};
use secrecy::SecretString;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::ToSocketAddrs;
use tokio::runtime::Handle;
use tool_core::agent::Decider;
use tool_core::model::RunUser;
use tool_core::schemars::JsonSchema;
use tool_core::store::RunStore;
use tool_core::{Agent, ToolContext, ToolSet};
use tool_http::server::{BindError, Shutdown, ShutdownPhase, bind};
pub use tool_http::server::{HttpService, ResponseBody, RunningServer};

pub use self::authorize::{
    Authorize, AuthorizeError, AuthorizeErrorKind, AuthorizeFuture, Credentials, Principal,
};
use self::config::{Config, HttpConfig};
use self::decider::ServerDecider;
pub use self::error::{ServerError, ServerErrorKind};
use self::exclusivity::Exclusivity;
use self::handler::{Handler, ServerState};
use self::output::OutputSchema;
pub use self::protected_resource::ProtectedResource;
use self::protected_resource::Protection;
use self::sealed_state::StateSealer;
use self::task_driver::TaskDriver;
use self::tasks::Tasks;
pub use self::tools_handle::ToolsHandle;
use crate::quiet::SdkRuntime;

/// Serves tools over standard input and output until the input ends, for hosts that start the program themselves.
///
/// [`Server::serve_stdio`] does the same with more options.
///
/// # Errors
///
/// Returns an error if a tool needs a value from its context, or the client violates the protocol at the start.
pub async fn serve_stdio(tools: impl Into<ToolSet>) -> Result<(), ServerError> {
    Server::new(tools).serve_stdio().await
}

/// A server that offers tools to any MCP host, over stdio or HTTP.
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
/// println!("listening at {}", server.url());
/// server.stop().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a `Server` does nothing unless it is spawned, or its service or a stream is served"]
pub struct Server {
    tools: ToolsHandle,
    config: Config,
    exclusivity: Exclusivity,
}

impl Server {
    /// Creates a server of these tools.
    pub fn new(tools: impl Into<ToolSet>) -> Self {
        let tools = ToolsHandle::new(tools.into());
        Self { tools, config: Config::default(), exclusivity: Exclusivity::default() }
    }

    /// Sets the server's name for programs; by default, the name of the executable.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.implementation.name = name.into();
        self
    }

    /// Sets the server's version; by default, the version of this crate.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.config.implementation.version = version.into();
        self
    }

    /// Sets the server's name for people.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.config.implementation.title = Some(title.into());
        self
    }

    /// Sets instructions for the use of the tools as a whole. Most hosts add them to their system prompt.
    pub fn instructions(mut self, instructions: impl Into<String>) -> Self {
        self.config.instructions = Some(instructions.into());
        self
    }

    /// Sets the context that tools take values from by `#[inject]`. Missing values are reported before anything is served.
    pub fn context(mut self, context: ToolContext) -> Self {
        self.config.context = context;
        self
    }

    /// Says whose calls the calls of an HTTP request are, from the headers of a request that was admitted: from its
    /// [token](Self::bearer_token), or from a header that only a proxy of yours can set. Tools inject the user as
    /// [`RunUser`], and the runs of agents among the tools [belong](tool_core::agent::Ask::user) to this user, so that
    /// their [`RunSetup`](tool_core::agent::RunSetup) has the user's values and budget. A session belongs to the user that began it.
    ///
    /// Calls of a request for which it returns `None` are nobody's, and tools that need the user fail. Over stdio, where the host is the user,
    /// set a `RunUser` in the [context](Self::context).
    ///
    /// ```
    /// use tool_core::model::RunUser;
    /// use tool_core::{tool, tools};
    /// use tool_mcp::server::Server;
    ///
    /// #[tool("Returns the orders of the customer")]
    /// fn orders(#[inject] user: &RunUser) -> String {
    ///     format!("the orders of {user}")
    /// }
    ///
    /// // The proxy removes this header from what it receives, and sets its own.
    /// let server = Server::new(tools![orders])
    ///     .bearer_token("sk-proxy")
    ///     .user(|headers| Some(RunUser::new(headers.get("x-user")?.to_str().ok()?)));
    /// # assert!(server.into_service().is_ok());
    /// ```
    pub fn user(mut self, user_of: impl Fn(&HeaderMap) -> Option<RunUser> + Send + Sync + 'static) -> Self {
        self.config.http.choose_user = Some(Arc::new(user_of));
        self
    }

    /// Makes the server a protected resource over HTTP: each request needs a token that the [authorizer](Authorize) accepts, and belongs to the
    /// [user](Principal::user) that it returns. Tools inject the user as [`RunUser`], and with its scopes as [`Principal`]; runs of
    /// agents and sessions belong to the user, as with [`user`](Self::user). There is no verification of tokens by itself.
    ///
    /// Clients find their authorization server in a document at `/.well-known/oauth-protected-resource`, also with the path of the resource
    /// behind it, which is public. Refused requests point to it: status 401 if there is no valid token, and 403 if
    /// [scopes](Self::scope) are missing.
    ///
    /// ```
    /// use tool_core::model::RunUser;
    /// use tool_core::{tool, tools};
    /// use tool_mcp::server::{AuthorizeError, Credentials, Principal, ProtectedResource, Server};
    ///
    /// #[tool("Lists the files of the user")]
    /// fn list(#[inject] user: &RunUser) -> String {
    ///     format!("the files of {user}")
    /// }
    ///
    /// #[tool("Deletes a file")]
    /// fn delete(name: String) {}
    ///
    /// fn authorize(credentials: &Credentials<'_>) -> Result<Principal, AuthorizeError> {
    ///     match credentials.bearer_token() {
    ///         // In place of a verification, for example by the crate `jsonwebtoken`:
    ///         Some("token-of-ada") => Ok(Principal::new("ada", ["files:read"])),
    ///         _ => Err(AuthorizeError::unauthenticated()),
    ///     }
    /// }
    ///
    /// let resource = ProtectedResource::new("https://tools.example/mcp")
    ///     .authorization_server("https://login.example")
    ///     .scopes(["files:read"]);
    /// let server = Server::new(tools![list, delete])
    ///     .allow_host("tools.example")
    ///     .protect(resource, authorize)
    ///     .scope("list", "files:read")
    ///     .scope("delete", "files:write");
    /// # assert!(server.into_service().is_ok());
    /// ```
    ///
    /// Use neither [`bearer_token`](Self::bearer_token) nor [`user`](Self::user) beside it. Over stdio it has no effect: there, the host is the user.
    ///
    /// The URL of the resource has to be known before it serves. Where the system chooses the port, as in tests, bind a listener to `127.0.0.1:0`, take
    /// the port from its `local_addr`, and pass the listener and the [service](Self::into_service) to `axum::serve`.
    pub fn protect(mut self, resource: ProtectedResource, authorize: impl Authorize + 'static) -> Self {
        self.config.http.protection = Some(Protection::new(resource, authorize));
        self
    }

    /// Requires a scope for the calls of a tool over HTTP, with [`protect`](Self::protect). Can be called repeatedly; each of the scopes is
    /// needed. Without them, the tool is listed, and a call is refused with status 403 and the scopes to request, so that clients can request
    /// them when they are needed. [`hide_tools_without_scope`](Self::hide_tools_without_scope) does not list it.
    ///
    /// The scope belongs to the name: also to a tool of this name that [replaces](ToolsHandle::replace) this one.
    pub fn scope(mut self, tool: impl Into<String>, scope: impl Into<String>) -> Self {
        self.config.scopes.entry(tool.into()).or_default().push(scope.into());
        self
    }

    /// Lists tools only for senders with their [scopes](Self::scope). Clients that request scopes only when a call needs them then never do so for
    /// these tools.
    ///
    /// ```
    /// # fn f(server: tool_mcp::server::Server) -> tool_mcp::server::Server {
    /// server.scope("delete", "files:write").hide_tools_without_scope()
    /// # }
    /// ```
    pub fn hide_tools_without_scope(mut self) -> Self {
        self.config.hides_tools = true;
        self
    }

    /// Sets the type of a tool's output: hosts receive its schema, and the output as structured content.
    ///
    /// The type is `T` for a function that returns `Result<T, E>`. A value that is not a JSON object, such as a number or a list, is
    /// wrapped in an object as its `result`. A call whose output cannot be structured, for example because it was cut, fails, and
    /// the model reads the output as text.
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
    /// #[tool("Returns the weather")]
    /// fn weather(city: String) -> Result<Weather, String> {
    ///     Ok(Weather { celsius: 22.5 })
    /// }
    ///
    /// let server = Server::new(tools![weather]).output_schema::<Weather>("weather");
    /// # let _ = server;
    /// ```
    pub fn output_schema<T: JsonSchema + 'static>(mut self, tool: impl Into<String>) -> Self {
        self.config.output_schemas.insert(tool.into(), OutputSchema::for_type::<T>());
        self
    }

    /// Serves tools that need approval like all others, and trusts the host to ask a person.
    ///
    /// By default, and without a [decider](Self::decider), such tools are not served.
    pub fn allow_unapproved(mut self) -> Self {
        self.config.allows_unapproved = true;
        self
    }

    /// Serves tools that need approval, and asks the decider before each of their calls.
    ///
    /// What the decider [defers](tool_core::run::Decision::defer) waits for a person of this service if the server has [`tasks`](Self::tasks) and the host
    /// follows them. Otherwise the call is denied.
    ///
    /// ```
    /// use tool_core::schemars::JsonSchema;
    /// use tool_core::agent::on_approval;
    /// use tool_core::run::Decision;
    /// use tool_core::{tool, tools};
    /// use tool_mcp::server::Server;
    ///
    /// #[tool("Deletes a user", needs_approval)]
    /// fn delete(user: u32) {}
    ///
    /// #[derive(serde::Deserialize, JsonSchema)]
    /// #[schemars(crate = "tool_core::schemars")]
    /// struct Target {
    ///     user: u32,
    /// }
    ///
    /// let server = Server::new(tools![delete]).decider(on_approval(|call| match call.arguments_as::<Target>() {
    ///     Ok(target) if target.user >= 1000 => Decision::approve(),
    ///     _ => Decision::deny("a user of the system"),
    /// }));
    /// # let _ = server;
    /// ```
    pub fn decider(mut self, decider: impl Decider + 'static) -> Self {
        self.config.decider = Some(ServerDecider::new(decider));
        self
    }

    /// Stores calls that wait, for hosts that follow [tasks](crate::server#tasks): the host reads that there is a task, and asks for its
    /// result until there is one. Without this, and for other hosts, a call waits as long as its request.
    ///
    /// The store can be one that is shared with other processes and agents. Each task is a run of an [agent of the server](Self::task_agent). Each caller can
    /// have 100 open tasks, and 1,000 with those that have ended; all callers together have at most 10,000 open ones. When a caller begins a task, its oldest
    /// tasks that have ended are removed beyond 900, and beyond 64 MiB of arguments and outputs. All callers without a token, a [user](Self::user) and a [principal](Principal) are one caller. A process drives 256 of the tasks at a time, and 32 of one caller. The arguments of a call that waits have at most
    /// 64 KiB.
    ///
    /// ```
    /// use tool_core::memory::InMemoryStore;
    /// use tool_core::run::{Decision, Wait};
    /// use tool_core::{tool, tools};
    /// use tool_mcp::server::Server;
    ///
    /// #[tool("Pays a bill", needs_approval)]
    /// fn pay(cents: u32) {}
    ///
    /// #[tool("Writes the report of a year")]
    /// fn report(year: u32) {}
    ///
    /// let server = Server::new(tools![pay, report])
    ///     .decider(|_: &Wait| Decision::defer())
    ///     .tasks(InMemoryStore::new())
    ///     .long_call("report");
    /// // A page shows the runs of this agent, or the program decides:
    /// let agent = server.task_agent()?;
    /// # let _ = agent;
    /// # Ok::<_, tool_mcp::server::ServerError>(())
    /// ```
    pub fn tasks(mut self, store: impl RunStore + 'static) -> Self {
        self.config.task_store = Some(Arc::new(store));
        self
    }

    /// Makes each call of a tool a [task](Self::tasks) from its beginning, because it takes long.
    pub fn long_call(mut self, tool: impl Into<String>) -> Self {
        self.config.long_calls.insert(tool.into());
        self
    }

    /// Sets how long a [task](Self::tasks) is kept after its last change; one day by default. One that has not ended by then is cancelled.
    pub fn task_lifetime(mut self, time: Duration) -> Self {
        self.config.task_lifetime = time;
        self
    }

    /// Returns the agent whose stored runs are the [tasks](Self::tasks), to show them on a page, and to [decide](Agent::decide) about
    /// what they wait for. Call this once all else is set: the agent has what the server has now, and not what is set later. In a store that several servers share, they are told apart by their
    /// [names](Self::name).
    ///
    /// # Errors
    ///
    /// Returns an error if the server has no [`tasks`](Self::tasks).
    pub fn task_agent(&self) -> Result<Agent, ServerError> {
        let store = self.config.task_store.clone().ok_or_else(ServerError::no_tasks)?;
        let (tools, exclusivity) = (self.tools.clone(), self.exclusivity.clone());
        let agent = served_tools::task_agent(tools, &self.config, store, exclusivity);
        agent.map_err(ServerError::task_agent)
    }

    /// Sets how many tools a page of the list has; 100 by default, and at least 1.
    pub fn page_size(mut self, tools: usize) -> Self {
        self.config.page_size = tools.max(1);
        self
    }

    /// Lets the SDK record its messages, with arguments and outputs, in the `tracing` records of the program.
    ///
    /// By default, the SDK runs on threads that discard its records. As soon as the first of them has started, the feature `log` of
    /// `tracing` forwards nothing more to a logger, as with any subscriber. With this option for all connections and servers of
    /// a process, there are no such threads.
    pub fn record_messages(mut self) -> Self {
        self.config.records_messages = true;
        self
    }

    /// Requires this bearer token over HTTP. Can be called repeatedly; each of the tokens is accepted. Tokens are never shown.
    pub fn bearer_token(mut self, token: impl Into<SecretString>) -> Self {
        self.config.http.access.add_key(token.into());
        self
    }

    /// Accepts HTTP requests for this host, such as `tools.example.org` or `tools.example.org:8080`, in addition to the
    /// loopback hosts.
    ///
    /// Requests for other hosts are refused with status 403, also with a [token](Self::bearer_token), because a web page could
    /// reach the server under its own host name.
    pub fn allow_host(mut self, host: impl AsRef<str>) -> Self {
        self.config.http.access.allow_host(host.as_ref());
        self
    }

    /// Accepts HTTP requests of web pages of this origin, such as `https://app.example.org`, or with `:*` for any port, in
    /// addition to the loopback origins.
    ///
    /// Requests of other origins are refused with status 403, also with a [token](Self::bearer_token). Clients other than browsers
    /// send no origin.
    pub fn allow_origin(mut self, origin: impl AsRef<str>) -> Self {
        self.config.http.access.allow_origin(origin.as_ref());
        self
    }

    /// Allows [`spawn`](Self::spawn) to bind to an address that other machines can reach.
    ///
    /// The [host](Self::allow_host) must be allowed as well. Require a [token](Self::bearer_token), [protect](Self::protect) the
    /// server, or put an authenticating proxy in front.
    pub fn allow_remote(mut self) -> Self {
        self.config.http.allows_remote = true;
        self
    }

    /// Limits the size of an HTTP request body; 4 MiB by default.
    pub fn max_body_bytes(mut self, bytes: usize) -> Self {
        self.config.http.limits.max_body_bytes = bytes;
        self
    }

    /// Limits the total size of the bodies of all HTTP requests in flight; 128 MiB by default, and never less than
    /// [`max_body_bytes`](Self::max_body_bytes). Requests beyond the limit are refused with status 503.
    ///
    /// A request takes a few times its size in memory while it is in flight; a malicious one, made of the shortest JSON
    /// values only, up to some 75 times. Where callers are untrusted, set both limits to what the memory allows.
    pub fn max_total_body_bytes(mut self, bytes: usize) -> Self {
        self.config.http.limits.max_total_body_bytes = bytes;
        self
    }

    /// Limits the number of HTTP requests in flight, such as calls, but not notifications; 1024 by default. Requests beyond the
    /// limit are refused with status 503. A call is in flight until its tool returns, also when its connection has ended. As many others can be
    /// [authorized](Self::protect) at a time.
    pub fn max_concurrent_requests(mut self, requests: usize) -> Self {
        self.config.http.limits.max_concurrent_requests = Some(requests);
        self
    }

    /// Limits the number of open HTTP connections with [`spawn`](Self::spawn); 1024 by default. Further clients wait for a
    /// connection to be closed. A session of a host usually takes one, and each of its calls in flight another.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.config.http.limits.max_connections = connections;
        self
    }

    /// Limits how long an HTTP client may be silent in the middle of a request; 30 seconds by default.
    ///
    /// The limit applies to the body of a request, which may take ten times as long in total. With [`spawn`](Self::spawn)
    /// it also applies to the head, to an idle connection, and to a response that the client does not read: the
    /// connection is closed then.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.config.http.limits.read_timeout = timeout;
        self
    }

    /// Limits the number of sessions over HTTP; 1000 by default. Further sessions are refused with status 503. The message that
    /// begins a session has at most 32 KiB, because it is stored as long as the session. Clients of the newest protocol have no
    /// sessions.
    pub fn max_sessions(mut self, sessions: usize) -> Self {
        self.config.http.max_sessions = sessions;
        self
    }

    /// Ends a session over HTTP after this time without a message; one hour by default.
    pub fn session_idle_timeout(mut self, timeout: Duration) -> Self {
        self.config.http.session_idle_timeout = timeout;
        self
    }

    /// Returns a handle to replace the tools while they are served.
    #[must_use]
    pub fn tools_handle(&self) -> ToolsHandle {
        self.tools.clone()
    }

    /// Serves over standard input and output until the input ends. Calls in flight then have 5 seconds to finish, and [tasks](Self::tasks) that run another 5.
    ///
    /// # Errors
    ///
    /// Returns an error if a tool needs a value that the context lacks, an [output schema](Self::output_schema) or a
    /// [scope](Self::scope) is of an unknown tool, or the client violates the protocol at the start.
    pub async fn serve_stdio(self) -> Result<(), ServerError> {
        let state = self.into_state(Shutdown::new())?;
        let (input, output) = stdio::take_streams()?;
        serve(state, input, output).await
    }

    /// Serves one client over any pair of streams until the input ends, like [`serve_stdio`](Self::serve_stdio).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`serve_stdio`](Self::serve_stdio).
    pub async fn serve_streams(
        self,
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Result<(), ServerError> {
        serve(self.into_state(Shutdown::new())?, input, output).await
    }

    /// Returns the route `/mcp` of streamable HTTP as a service, to serve it as part of another application. The sessions end with it.
    ///
    /// ```
    /// # use tool_core::tools;
    /// # fn main() -> Result<(), tool_mcp::server::ServerError> {
    /// let service = tool_mcp::server::Server::new(tools![]).into_service()?;
    /// let app: axum::Router = axum::Router::new().route_service("/mcp", service);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The service of a [protected](Self::protect) server also has the route of its document: pass a clone to
    /// `route_service("/.well-known/oauth-protected-resource/mcp", …)`.
    ///
    /// # Errors
    ///
    /// Returns an error if a tool needs a value that the context lacks, an [output schema](Self::output_schema) or a
    /// [scope](Self::scope) is of an unknown tool, or requests cannot be [authorized](Self::protect).
    pub fn into_service(self) -> Result<HttpService, ServerError> {
        self.into_router(Shutdown::new()).map(HttpService::new)
    }

    fn into_router(self, shutdown: Shutdown) -> Result<Router, ServerError> {
        self.config.check_authorization()?;
        let http = self.config.http.clone();
        Ok(guard::router(self.into_state(shutdown)?, http))
    }

    /// Serves over HTTP in a background task of the Tokio runtime until the returned [`RunningServer`] is dropped.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`into_service`](Self::into_service), and an error if the address cannot be bound, or is not a loopback
    /// address without [`allow_remote`](Self::allow_remote).
    pub async fn spawn(self, address: impl ToSocketAddrs) -> Result<RunningServer, ServerError> {
        let HttpConfig { allows_remote, limits, .. } = self.config.http;
        let shutdown = Shutdown::new();
        let router = self.into_router(shutdown.clone())?;
        let listener = bind(address, allows_remote).await.map_err(ServerError::address)?;
        let running = RunningServer::start(listener, router, "/mcp", &limits, shutdown);
        running.map_err(|error| ServerError::address(BindError::Io(error)))
    }

    fn into_state(self, shutdown: Shutdown) -> Result<Arc<ServerState>, ServerError> {
        self.tools.activate(&self.config)?;
        let tasks = match self.config.task_store {
            Some(_) => {
                let driver = TaskDriver::new(self.task_agent()?, shutdown.clone());
                Some(Arc::new(Tasks::new(driver, self.config.task_lifetime)))
            }
            None => None,
        };
        let runtime = SdkRuntime::new(self.config.records_messages).map_err(ServerError::no_runtime)?;
        let sealer = StateSealer::new().map_err(ServerError::no_runtime)?;
        let Self { tools, config, exclusivity, .. } = self;
        Ok(Arc::new(ServerState::new(tools, config, exclusivity, tasks, shutdown, runtime, sealer)))
    }
}

/// The time that tasks in flight have to end once the input has.
const MAX_ENDING: Duration = Duration::from_secs(5);

async fn serve(
    state: Arc<ServerState>,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<(), ServerError> {
    state.set_host(Handle::current());
    let (runtime, shutdown) = (state.runtime().clone(), state.shutdown().clone());
    // The state has the tasks, which go on when the client has gone.
    let handler = Handler::new(Arc::clone(&state));
    let served = match runtime.run(serve_server(handler, (input, output))).await {
        Ok(running) => runtime.run(running.waiting()).await.map(drop).map_err(ServerError::session_failed),
        // A client that disconnects without a message is no error.
        Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(error) => Err(ServerError::initialization(&error)),
    };
    shutdown.advance_to(ShutdownPhase::Draining);
    let _ = tokio::time::timeout(MAX_ENDING, shutdown.drained()).await;
    shutdown.advance_to(ShutdownPhase::ClosingStreams);
    // What was stopped leaves its run to the next server.
    shutdown.settled().await;
    drop(state);
    served
}

/// Shows the names of the tools, never a token.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Implementation { name, version, .. } = &self.config.implementation;
        f.debug_struct("Server")
            .field("name", name)
            .field("version", version)
            .field("tools", &self.tools)
            .finish_non_exhaustive()
    }
}
