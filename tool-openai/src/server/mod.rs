//! Serves models, and agents with their tools, as an OpenAI-compatible endpoint for any OpenAI client or chat UI.
//!
//! ```
//! use tool_core::testing::ScriptedModel;
//! use tool_openai::server::Server;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let server = Server::new().model("scripted", ScriptedModel::new()).spawn("127.0.0.1:0").await?;
//! println!("listening at {}", server.url());
//! # Ok(())
//! # }
//! ```
//!
//! | route | |
//! | --- | --- |
//! | `POST /v1/chat/completions` | plain and streamed |
//! | `POST /v1/responses` | plain and streamed; continues an earlier response by `previous_response_id` |
//! | `GET`, `DELETE /v1/responses/{id}` | a [stored](Server::max_stored_entries) response |
//! | `GET /v1/models`, `GET /v1/models/{id}` | the names of the models and agents |
//!
//! # Tools
//!
//! A [model](Server::model) receives the tools of the request, and the caller executes the calls. An [agent](Server::agent)
//! has the tools of the request in addition to its own. Its own calls are executed here; calls of the caller's tools are
//! returned to the caller, and the run continues when the caller sends the results. Runs are stored in the
//! [run store](tool_core::agent::AgentBuilder::run_store) of the agent, so that a paused one survives a restart, or
//! [in memory](Server::max_stored_entries) if it has none. If the run is gone, or the caller changed the conversation, the agent
//! continues from the messages of the request. A request can have up to 1000 tools, and up to 1000 calls in a message. Its tools are
//! offered at once: `defer_loading` and the tool `tool_search` are refused.
//!
//! A paused run continues once. If a caller repeats the request with the results, also while the first one is in flight, it
//! receives the same answer, and no call of the agent is executed again. After an error or a disconnect, the repeated request
//! continues where the run was, also in another process. If the caller disconnected while an `at_most_once` call of the agent was
//! executed, the repeated request is refused with status 409, because the outcome of the call is unknown.
//!
//! # Questions
//!
//! A tool of an agent can [ask a person](tool_core::tool::Asker). A question that the agent's own decider leaves open is returned to
//! the caller, as a call of the function `ask_user` with these arguments:
//!
//! | argument | |
//! | --- | --- |
//! | `question` | the text |
//! | `schema` | the JSON Schema of the answer |
//! | `choices`, `default` | the answers to choose from, and the one to suggest, if there are any |
//! | `problem` | what was wrong with the last answer, if the question is asked again |
//!
//! The result of the call is the answer, as JSON or, for a text, as the text itself; an empty one declines. The run then continues, in the
//! Responses API by `previous_response_id`. An answer that is not one of the choices is refused with status 400 (`invalid_answer`), and
//! can be sent again. A second answer, and one for a run that is gone, is refused with status 409 (`question_closed`). The agent's
//! model sees neither questions nor answers, only the results of its tools.
//!
//! A request to the Chat Completions API, or one that is not stored, is asked only if it declares a function `ask_user`; with
//! `tool_choice: "none"`, none is. The tool otherwise reads that nobody can be asked. Callers are never asked for secrets or approvals.
//!
//! # Access
//!
//! Every program on the machine can call a server without a [key](Server::api_key). Web pages cannot, with or without one, also in
//! a [service](Server::into_service): requests must be for an [allowed host](Server::allow_host), come from no web page or one of an
//! [allowed origin](Server::allow_origin), and declare their body as `application/json`. With several keys, each key has its own
//! stored responses and paused runs, and cannot access anyone else's, and so does each [user](Server::user) of a key. Another key continues no runs
//! of an earlier one.
//!
//! # Callers
//!
//! When a caller disconnects, its request in flight is cancelled, unless it continues a paused run, which waits for its repetition. Errors of models and agents are reported by their kind
//! only, such as a rate limit, unless [`verbose_errors`](Server::verbose_errors) is set. Every response has an `x-request-id`.

mod error;
mod error_mapping;
mod logprobs;
mod backend;
mod options;
mod store;
mod stored_response;
mod shared_answer;
mod answers;
mod state;
mod call_ids;
mod caller_tools;
mod questions;
mod results;
mod rebuilding;
mod agent;
mod dispatch;
mod request;
mod chat;
mod responses;
mod routes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use axum::Router;
use axum::http::HeaderMap;
use secrecy::SecretString;
use tokio::net::ToSocketAddrs;
use tool_core::model::RunUser;
use tool_core::{Agent, ChatModel, ModelOptions};
pub use tool_http::server::{HttpService, ResponseBody, RunningServer};
use tool_http::server::{Shutdown, bind};

use self::backend::Backend;
use self::state::{Config, ServerState};

/// Models and agents behind one endpoint, each under its own name.
///
/// Requests need no key unless [one is set](Self::api_key); without a key, only loopback addresses are bound, unless
/// [`allow_remote`](Self::allow_remote) is called.
#[derive(Clone, Default)]
#[must_use = "a `Server` does nothing unless it is spawned or its service is part of an application"]
pub struct Server {
    backends: BTreeMap<String, Backend>,
    config: Config,
}

impl Server {
    /// Creates a server without models.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a model. It receives the conversation and the tools of each request, and the caller executes the calls.
    pub fn model(mut self, name: impl Into<String>, model: impl ChatModel + 'static) -> Self {
        self.backends.insert(name.into(), Backend::Model(Arc::new(model)));
        self
    }

    /// Adds an agent. Its own calls are executed here, calls of the caller's tools by the caller.
    ///
    /// A call that needs approval is denied unless the agent has a [decider](tool_core::agent::AgentBuilder::decider) that approves it. Runs of an
    /// agent without a [run store](tool_core::agent::AgentBuilder::run_store) are stored in memory from now on.
    pub fn agent(mut self, name: impl Into<String>, agent: Agent) -> Self {
        self.backends.insert(name.into(), Backend::Agent(agent));
        self
    }

    /// Sets which model options requests can set. `choose` receives the options of the request and the ones that take effect
    /// by default, and returns the ones to use. They take precedence over the options of the agent.
    ///
    /// By default, a [model](Self::model) receives all options of the request. For an [agent](Self::agent), those that its author
    /// has set take precedence, and of two limits of output tokens the lower one applies. A request with another
    /// `service_tier` or `reasoning_effort` than the agent's is refused with status 400, because they determine the price of an answer. An agent that
    /// [hands runs over](tool_core::agent::AgentBuilder::handoff_to) ignores the other options of requests.
    ///
    /// ```
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, ModelOptions};
    /// use tool_openai::server::Server;
    ///
    /// # fn main() -> Result<(), tool_core::agent::BuildError> {
    /// let options = ModelOptions::default().with_max_output_tokens(500);
    /// let agent = Agent::builder(ScriptedModel::new()).options(options).build()?;
    /// let server = Server::new().agent("clerk", agent).model_options(|sent, mut options| {
    ///     options.reasoning_effort = sent.reasoning_effort.clone();
    ///     options
    /// });
    /// # Ok(())
    /// # }
    /// ```
    pub fn model_options(
        mut self,
        choose: impl Fn(&ModelOptions, ModelOptions) -> ModelOptions + Send + Sync + 'static,
    ) -> Self {
        self.config.choose_options = Some(Arc::new(choose));
        self
    }

    /// Says [whose run](tool_core::agent::Ask::user) a request starts, from the headers of a request that was admitted: from its key, or from a header
    /// that only a proxy of yours can set. A request for which it returns `None` is nobody's. Stored responses and paused runs belong to the user, and
    /// exist for no other user of the same key. What the body of a request calls its user is
    /// the word of the caller, and never this.
    ///
    /// ```
    /// use tool_core::model::RunUser;
    /// use tool_openai::server::Server;
    ///
    /// // The proxy removes this header from what it receives, and sets its own.
    /// let server = Server::new()
    ///     .api_key("sk-secret")
    ///     .user(|headers| Some(RunUser::new(headers.get("x-user")?.to_str().ok()?)));
    /// ```
    pub fn user(mut self, user_of: impl Fn(&HeaderMap) -> Option<RunUser> + Send + Sync + 'static) -> Self {
        self.config.choose_user = Some(Arc::new(user_of));
        self
    }

    /// Requires this key as a bearer token. Can be called repeatedly; each of the keys is accepted. Keys are never shown.
    ///
    /// ```
    /// use tool_openai::server::Server;
    ///
    /// let server = Server::new().api_key("sk-secret");
    /// assert!(!format!("{server:?}").contains("sk-secret"));
    /// ```
    pub fn api_key(mut self, key: impl Into<SecretString>) -> Self {
        self.config.access.add_key(key.into());
        self
    }

    /// Accepts requests for this host, such as `ai.example.org` or `ai.example.org:8080`, in addition to `localhost` and loopback
    /// addresses.
    ///
    /// Requests for other hosts are refused with status 403, also with a [key](Self::api_key), because a web page could reach
    /// the server under its own host name.
    pub fn allow_host(mut self, host: impl AsRef<str>) -> Self {
        self.config.access.allow_host(host.as_ref());
        self
    }

    /// Accepts requests of web pages of this origin, such as `https://app.example.org`, or with `:*` for any port, in addition to
    /// the loopback origins.
    ///
    /// Requests of other origins are refused with status 403, also with a [key](Self::api_key). Callers other than browsers
    /// send no origin. The server sends no CORS headers: a browser shows its responses to pages of another origin only if a layer
    /// of the [application](Self::into_service) adds them.
    pub fn allow_origin(mut self, origin: impl AsRef<str>) -> Self {
        self.config.access.allow_origin(origin.as_ref());
        self
    }

    /// Allows [`spawn`](Self::spawn) to bind to an address that other machines can reach, although no [key](Self::api_key) is
    /// required. The [host](Self::allow_host) must be allowed as well.
    pub fn allow_remote(mut self) -> Self {
        self.config.allows_remote = true;
        self
    }

    /// Limits the size of a request body; 32 MiB by default.
    pub fn max_body_bytes(mut self, bytes: usize) -> Self {
        self.config.limits.max_body_bytes = bytes;
        self
    }

    /// Limits the total size of the bodies of all requests in flight; 128 MiB by default, and never less than
    /// [`max_body_bytes`](Self::max_body_bytes). Requests beyond the limit are refused with status 503. A request that continues or
    /// retrieves a stored response, or continues a paused run, counts with its size; a conversation beyond the limit is not stored.
    ///
    /// A request takes a few times its size in memory while it is in flight; a malicious one, made of the shortest JSON
    /// values only, up to some 75 times. Where callers are untrusted, set both limits to what the memory allows.
    pub fn max_total_body_bytes(mut self, bytes: usize) -> Self {
        self.config.limits.max_total_body_bytes = bytes;
        self
    }

    /// Limits the number of requests in flight; 1024 by default. Requests beyond the limit are refused with status 503.
    pub fn max_concurrent_requests(mut self, requests: usize) -> Self {
        self.config.limits.max_concurrent_requests = Some(requests);
        self
    }

    /// Limits the number of requests in flight with each [key](Self::api_key); 256 by default, so that one key leaves room for others.
    /// Requests beyond the limit are refused with status 429. Callers without a key cannot be told apart: for them, only
    /// [`max_concurrent_requests`](Self::max_concurrent_requests) holds.
    pub fn max_concurrent_requests_per_key(mut self, requests: usize) -> Self {
        self.config.max_concurrent_requests_per_key = requests;
        self
    }

    /// Limits the number of open connections with [`spawn`](Self::spawn); 1024 by default. Further callers wait for a
    /// connection to be closed.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.config.limits.max_connections = connections;
        self
    }

    /// Limits how long a caller may be silent in the middle of a request; 30 seconds by default.
    ///
    /// The limit applies to the body of a request, which may take ten times as long in total. With [`spawn`](Self::spawn)
    /// it also applies to the head, to an idle connection, and to a response that the caller does not read: the
    /// connection is closed then.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.config.limits.read_timeout = timeout;
        self
    }

    /// Limits how many responses, how many paused runs, and how many answers to requests that continue runs are stored in memory; 1000 of
    /// each by default. Beyond this limit, and beyond some 256 MiB of each, the oldest are dropped.
    ///
    /// An agent with a [run store](tool_core::agent::AgentBuilder::run_store) stores its paused runs there, until they have an answer or
    /// are older than its [limit](tool_core::agent::AgentBuilder::max_run_age).
    pub fn max_stored_entries(mut self, entries: usize) -> Self {
        self.config.retention.max_entries = entries;
        self
    }

    /// Limits how long responses, paused runs and answers are stored in memory; one hour by default.
    pub fn max_stored_age(mut self, age: Duration) -> Self {
        self.config.retention.max_age = age;
        self
    }

    /// Sends the full text of errors of models and agents to the callers. The text may describe internal systems: enable
    /// this only for trusted callers.
    pub fn verbose_errors(mut self, is_verbose: bool) -> Self {
        self.config.error_mapper.is_verbose = is_verbose;
        self
    }

    /// Returns the routes as a service, to serve them as part of another application.
    ///
    /// ```
    /// let service = tool_openai::server::Server::new().into_service();
    /// let app: axum::Router = axum::Router::new().nest_service("/ai", service);
    /// ```
    pub fn into_service(self) -> HttpService {
        HttpService::new(self.into_router())
    }

    fn into_router(self) -> Router {
        routes::router(Arc::new(ServerState::new(self.config, self.backends)))
    }

    /// Serves in a background task of the Tokio runtime until the returned [`RunningServer`] is dropped.
    ///
    /// # Errors
    ///
    /// Returns an error if the address cannot be bound, or is not a loopback address although neither a [key](Self::api_key) is
    /// required nor [`allow_remote`](Self::allow_remote) was called.
    pub async fn spawn(self, address: impl ToSocketAddrs) -> io::Result<RunningServer> {
        let Config { access, allows_remote, limits, .. } = &self.config;
        let limits = *limits;
        let listener = bind(address, *allows_remote || access.has_keys()).await;
        let listener = listener.map_err(|error| error.into_io("require a key with `api_key`"))?;
        RunningServer::start(listener, self.into_router(), "/v1", &limits, Shutdown::new())
    }
}

/// Shows the names of the models and agents, never a key.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Server").field(&self.backends.keys().collect::<Vec<_>>()).finish()
    }
}
