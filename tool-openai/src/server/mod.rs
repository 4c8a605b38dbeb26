//! A model, or an agent with its tools, as an OpenAI-compatible endpoint. Any OpenAI client or chat UI can talk to it.
//!
//! ```
//! use tool_core::testing::ScriptedModel;
//! use tool_openai::server::Server;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let server = Server::new().model("greeter", ScriptedModel::new().says("Hello!")).spawn("127.0.0.1:0").await?;
//! println!("talk to {}", server.base_url());
//! # Ok(())
//! # }
//! ```
//!
//! | | |
//! | --- | --- |
//! | `POST /v1/chat/completions` | plain and streamed |
//! | `POST /v1/responses` | plain and streamed; goes on from an earlier one by `previous_response_id` |
//! | `GET`, `DELETE /v1/responses/{id}` | a response that is [kept](Server::keep) |
//! | `GET /v1/models`, `GET /v1/models/{id}` | the names that were given |
//!
//! # Tools
//!
//! A [model](Server::model) is offered the tools of the caller, who makes the calls. An [agent](Server::agent) is offered
//! them beside its own: its own calls are made here, the caller's come back to the caller, and when that sends the
//! results, the run goes on where it stood. Such a run is [kept](Server::keep) in memory; if it is gone, or the caller changed the
//! conversation, the agent goes on from what the conversation says.
//!
//! # Callers
//!
//! A caller who goes away cancels what is under way for it. What went wrong behind the server is told by its kind only,
//! such as a rate limit, unless [`verbose_errors`](Server::verbose_errors) is set. Every answer has an `x-request-id`.

mod agent;
mod backend;
mod callers;
mod chat;
mod connection;
mod endpoint;
mod error;
mod failure;
mod http;
mod ids;
mod kept;
mod logprobs;
mod responses;
mod routes;
mod running;
mod tools;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use secrecy::SecretString;
use tokio::net::{TcpListener, ToSocketAddrs};
use tool_core::{Agent, ChatModel};

use self::backend::Backend;
use self::endpoint::{Endpoint, Settings};
use self::kept::Keeping;
pub use self::running::RunningServer;

/// Models and agents behind one endpoint, each under a name of its own.
///
/// It asks for no key unless it is [given one](Self::api_key): bind it to a loopback address then, or put something in
/// front that does.
#[derive(Clone, Default)]
#[must_use = "nothing is served until it is spawned or its router is"]
pub struct Server {
    backends: BTreeMap<String, Backend>,
    settings: Settings,
}

impl Server {
    /// An endpoint without models.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a model: it is sent the conversation and the tools of each request, and the caller makes the calls.
    pub fn model(mut self, name: impl Into<String>, model: impl ChatModel + 'static) -> Self {
        self.backends.insert(name.into(), Backend::Model(Arc::new(model)));
        self
    }

    /// Adds an agent: its calls are made here, those of the caller's tools by the caller, and the caller gets the answer.
    /// A call that needs approval is denied, unless the agent has an [approver](tool_core::AgentBuilder::approver).
    pub fn agent(mut self, name: impl Into<String>, agent: Agent) -> Self {
        self.backends.insert(name.into(), Backend::Agent(agent));
        self
    }

    /// Asks for this key, as a bearer token; called again, one of these keys will do. It is shown nowhere.
    ///
    /// ```
    /// use tool_openai::server::Server;
    ///
    /// let server = Server::new().api_key("sk-secret");
    /// assert!(!format!("{server:?}").contains("sk-secret"));
    /// ```
    pub fn api_key(mut self, key: impl Into<SecretString>) -> Self {
        self.settings.keys.push(key.into());
        self
    }

    /// How long a request may be, in bytes; 32 MiB unless it is set.
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.settings.longest_body = bytes;
        self
    }

    /// How long all requests under way may be together, in bytes; 128 MiB unless it is set, and never less than
    /// [one](Self::max_body) may be. One that finds no room is told to come back later.
    ///
    /// A request takes a few times its length in memory, as long as it is under way; one that was written to do harm, of
    /// nothing but the shortest JSON values, up to some 75 times. Set both limits to what the memory bears, where strangers ask.
    pub fn max_bodies(mut self, bytes: usize) -> Self {
        self.settings.most_of_bodies = bytes;
        self
    }

    /// How many requests may be under way at once; any number unless it is set. One more is told to come back later.
    pub fn max_requests(mut self, requests: usize) -> Self {
        self.settings.most_requests = Some(requests);
        self
    }

    /// How long a caller may be silent in the middle of a request; 30 seconds unless it is set. It holds for the body of
    /// a request, which may take ten times as long in all, and with [`spawn`](Self::spawn) for its head, for a connection that
    /// waits for the next, and for an answer of which the caller takes nothing: the connection is cut then.
    pub fn read_timeout(mut self, time: Duration) -> Self {
        self.settings.read_timeout = time;
        self
    }

    /// How many responses, and how many runs that wait for their caller, are kept in memory, and for how long; 1000 of
    /// each and an hour unless it is set. Beyond, and beyond some 256 MiB of each, the oldest are dropped.
    ///
    /// An agent with a [store](tool_core::AgentBuilder::run_store) keeps such runs there, too, until they have an answer.
    pub fn keep(mut self, number: usize, time: Duration) -> Self {
        self.settings.keeping = Keeping { number, age: time };
        self
    }

    /// Tells callers what went wrong behind the server in its own words, which may name what is there: only for callers
    /// who may know.
    pub fn verbose_errors(mut self, is_verbose: bool) -> Self {
        self.settings.telling.is_verbose = is_verbose;
        self
    }

    /// The routes, for a server of one's own.
    ///
    /// ```
    /// let app: axum::Router = tool_openai::server::Server::new().router();
    /// ```
    pub fn router(self) -> Router {
        routes::of(Arc::new(Endpoint::new(self.settings, self.backends)))
    }

    /// Serves in the background, on a Tokio runtime, until what is returned is dropped.
    ///
    /// # Errors
    ///
    /// The address cannot be bound.
    pub async fn spawn(self, address: impl ToSocketAddrs) -> std::io::Result<RunningServer> {
        let read_timeout = self.settings.read_timeout;
        RunningServer::start(TcpListener::bind(address).await?, self.router(), read_timeout)
    }
}

/// Names what is served, never a key.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Server").field(&self.backends.keys().collect::<Vec<_>>()).finish()
    }
}
