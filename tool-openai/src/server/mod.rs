//! A model, or an agent with its tools, as an OpenAI-compatible endpoint: `POST /v1/chat/completions`, plain and
//! streamed, and `GET /v1/models`. Any OpenAI client or chat UI can talk to it.
//!
//! ```
//! use tool_core::testing::OfflineModel;
//! use tool_openai::server::Server;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let server = Server::new().model("offline", OfflineModel::new()).spawn("127.0.0.1:0").await?;
//! println!("talk to {}", server.base_url());
//! # Ok(())
//! # }
//! ```

mod backend;
mod error;
mod request;
mod response;
mod running;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;
use tokio::net::{TcpListener, ToSocketAddrs};
use tool_core::{Agent, ChatModel};

use self::backend::Backend;
use self::error::ApiError;
pub use self::running::RunningServer;

/// How long a request may be, in bytes.
const LONGEST_REQUEST: usize = 32 << 20;

/// Models and agents behind one endpoint, each under a name of its own.
///
/// It asks for no key: bind it to a loopback address, or put something in front that does.
#[derive(Clone, Default)]
pub struct Server {
    backends: BTreeMap<String, Backend>,
}

impl Server {
    /// An endpoint without models.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a model: it is sent the conversation and the tools of each request, and the caller makes the calls.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>, model: impl ChatModel + 'static) -> Self {
        self.backends.insert(name.into(), Backend::Model(Arc::new(model)));
        self
    }

    /// Adds an agent: its calls are made here, and the caller gets the answer.
    #[must_use]
    pub fn agent(mut self, name: impl Into<String>, agent: Agent) -> Self {
        self.backends.insert(name.into(), Backend::Agent(agent));
        self
    }

    /// The routes, for a server of one's own.
    ///
    /// ```
    /// let app: axum::Router = tool_openai::server::Server::new().router();
    /// ```
    pub fn router(self) -> Router {
        let state = Arc::new(Endpoint { backends: self.backends, started: unix_time() });
        Router::new()
            .route("/v1/chat/completions", post(complete))
            .route("/v1/models", get(list_models))
            .fallback(async || ApiError::new(StatusCode::NOT_FOUND, "there is no such URL here"))
            .method_not_allowed_fallback(async || {
                ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "this URL takes another method")
            })
            .layer(DefaultBodyLimit::max(LONGEST_REQUEST))
            .with_state(state)
    }

    /// Serves in the background, on a Tokio runtime, until what is returned is dropped.
    ///
    /// # Errors
    ///
    /// The address cannot be bound.
    pub async fn spawn(self, address: impl ToSocketAddrs) -> std::io::Result<RunningServer> {
        RunningServer::start(TcpListener::bind(address).await?, self.router())
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Server").field(&self.backends.keys().collect::<Vec<_>>()).finish()
    }
}

struct Endpoint {
    backends: BTreeMap<String, Backend>,
    started: u64,
}

async fn complete(State(endpoint): State<Arc<Endpoint>>, body: Result<Bytes, BodyError>) -> Response {
    let answer = async {
        let body = body.map_err(|error| ApiError::new(error.status(), error.body_text()))?;
        let request = request::read(&body)?;
        let backend =
            endpoint.backends.get(&request.model).ok_or_else(|| ApiError::unknown_model(&request.model))?;
        let about = response::About::new(request.model.clone(), unix_time());
        if !request.is_streamed {
            let response = backend.respond(request).await?;
            return Ok(json_response(StatusCode::OK, &about.whole(&response)));
        }
        let includes_usage = request.includes_usage;
        let deltas = backend.clone().stream(request).await?;
        let events = Body::from_stream(about.events(deltas, includes_usage));
        let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
        Ok((headers, events).into_response())
    };
    answer.await.unwrap_or_else(|error: ApiError| error.into_response())
}

type BodyError = axum::extract::rejection::BytesRejection;

async fn list_models(State(endpoint): State<Arc<Endpoint>>) -> Response {
    let models = endpoint.backends.keys().map(|name| {
        json!({ "id": name, "object": "model", "created": endpoint.started, "owned_by": "tool-openai" })
    });
    let list = json!({ "object": "list", "data": models.collect::<Vec<_>>() });
    json_response(StatusCode::OK, &list)
}

fn json_response(status: StatusCode, body: &serde_json::Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
