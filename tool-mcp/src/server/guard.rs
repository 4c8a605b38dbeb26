//! The route of streamable HTTP, with admission and limits of every request.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::Context;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Router, middleware};
use futures_util::StreamExt;
use rmcp::model::RequestId;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tool_http::server::{
    Access, Caller, LimitedBody, Limiter, Rejection, Shutdown, ShutdownPhase, hold_until_sent, is_json,
    json_response,
};

use super::authorize::Principal;
use super::config::{ChooseUser, HttpConfig};
use super::handler::{Handler, ServerState};
use super::session_manager::{BoundedSessionManager, with_caller};
use super::shares::RequestPermits;

const SESSION_HEADER: &str = "mcp-session-id";

/// The largest message that begins a session. The SDK stores it until the session ends.
const MAX_INITIALIZE_BYTES: usize = 32 << 10;

struct Guard {
    access: Access,
    choose_user: Option<Arc<ChooseUser>>,
    state: Arc<ServerState>,
    /// Ends the sessions, and their tasks, with the router.
    _end_sessions: Box<dyn Send + Sync>,
    limiter: Limiter,
    /// Limits the requests that are being authorized, which may be of anybody: they must not take the place of those that are.
    authorizing: Limiter,
    sessions: Arc<BoundedSessionManager>,
    shutdown: Shutdown,
}

/// Returns the route of streamable HTTP.
pub(super) fn router(state: Arc<ServerState>, config: HttpConfig) -> Router {
    // Hosts and origins are checked here.
    let transport_config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_max_request_body_bytes(config.limits.max_body_bytes);
    let end_sessions = Box::new(transport_config.cancellation_token.clone().drop_guard());
    let shutdown = state.shutdown().clone();
    if let Ok(host) = Handle::try_current() {
        state.set_host(host);
        let closing = shutdown.reached_weak(ShutdownPhase::ClosingStreams);
        let streams = transport_config.cancellation_token.clone();
        tokio::spawn(async move {
            if closing.await {
                streams.cancel();
            }
        });
    }
    let sessions = BoundedSessionManager::new(&config);
    let serving = Arc::clone(&state);
    let service = StreamableHttpService::new(
        move || Ok(Handler::new(Arc::clone(&state))),
        Arc::clone(&sessions),
        transport_config,
    );
    let (limiter, authorizing) = (Limiter::new(config.limits), Limiter::new(config.limits));
    let HttpConfig { access, choose_user, .. } = config;
    let guard = Guard {
        access,
        choose_user,
        state: Arc::clone(&serving),
        _end_sessions: end_sessions,
        limiter,
        authorizing,
        sessions,
        shutdown,
    };
    let guard = Arc::new(guard);
    Router::new()
        .route_service("/mcp", service)
        .layer(middleware::from_fn_with_state(serving, run_quietly))
        .layer(middleware::from_fn_with_state(guard, guard_request))
}

/// Runs the SDK's part of a request, including the body of its response, without a subscriber.
async fn run_quietly(State(state): State<Arc<ServerState>>, request: Request, next: Next) -> Response {
    state.set_host(Handle::current());
    let runtime = state.runtime().clone();
    let response = runtime.run(next.run(request)).await;
    response.map(|body| {
        let mut chunks = body.into_data_stream();
        let next = move |context: &mut Context<'_>| runtime.enter(|| chunks.poll_next_unpin(context));
        Body::from_stream(futures_util::stream::poll_fn(next))
    })
}

async fn guard_request(State(guard): State<Arc<Guard>>, mut request: Request, next: Next) -> Response {
    let protection = guard.state.protection();
    let admitted = match protection {
        Some(_) => guard.access.admit_without_key(request.uri(), request.headers()).map(|()| Caller::ANYONE),
        None => guard.access.admit(request.uri(), request.headers()),
    };
    let caller = match admitted {
        Ok(caller) => caller,
        Err(rejection) => return rejection.into_response(),
    };
    if guard.shutdown.has_reached(ShutdownPhase::Draining) {
        return Rejection::ShuttingDown.into_response();
    }
    let mut user = guard.choose_user.as_ref().and_then(|choose_user| choose_user(request.headers()));
    if let Some(protection) = protection {
        if let Some(metadata) = protection.metadata(request.method(), request.uri()) {
            return metadata;
        }
        let permit = match guard.authorizing.begin_request() {
            Ok(permit) => permit,
            Err(rejection) => return rejection.into_response(),
        };
        let authorized = protection.authorize(request.headers()).await;
        drop(permit);
        match authorized {
            Ok(principal) => {
                user = Some(principal.user().clone());
                request.extensions_mut().insert(principal);
            }
            Err(refusal) => return refusal,
        }
    }
    // A session belongs to its user.
    let caller = user.as_ref().map_or(caller, |user| Caller::with_key(format!("user {user}").as_bytes()));
    user.into_iter().for_each(|user| drop(request.extensions_mut().insert(user)));
    request.extensions_mut().insert(caller);
    with_caller(caller, async {
        match *request.method() {
            Method::POST => {
                guard.handle_post(request, caller, next).await.unwrap_or_else(IntoResponse::into_response)
            }
            Method::DELETE if !guard.has_session(request.headers(), caller).await => unknown_session(),
            _ => next.run(request).await,
        }
    })
    .await
}

impl Guard {
    async fn handle_post(&self, request: Request, caller: Caller, next: Next) -> Result<Response, Rejection> {
        let in_flight = self.shutdown.track_request();
        let (mut head, body) = request.into_parts();
        let LimitedBody { bytes, permit } = self.limiter.read_body(body).await?;
        let message: Message<'_> = serde_json::from_slice(&bytes).unwrap_or_default();
        if message.method.as_deref() == Some("initialize") && bytes.len() > MAX_INITIALIZE_BYTES {
            return Err(Rejection::BodyTooLarge(MAX_INITIALIZE_BYTES));
        }
        if let Some(id) = self.repeated_id(&head.headers, caller, &message).await {
            let text = "the id belongs to a request in flight; give each request another one";
            return Ok(json_rpc_error(&json!(id), -32600, text));
        }
        // A notification, such as one that cancels a call, and the answer to a question of a call are always accepted.
        let request_permit = if message.is_request() { self.limiter.begin_request()? } else { None };
        let permits = Arc::new(RequestPermits { _body: permit, _request: request_permit });
        if message.method.as_deref() == Some("tools/call") {
            if let Some(refusal) = self.missing_scopes(&head.extensions, &bytes) {
                return Ok(refusal);
            }
            // The context of the call contains the extensions, so a call without a connection is still in flight.
            head.extensions.insert(Arc::clone(&permits));
        }
        let (is_json, has_session) = (is_json(&head.headers), head.headers.contains_key(SESSION_HEADER));
        let response = next.run(Request::from_parts(head, Body::from(bytes.clone()))).await;
        if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE && is_json {
            return Ok(invalid_message(&bytes));
        }
        if response.status() == StatusCode::INTERNAL_SERVER_ERROR
            && !has_session
            && self.sessions.is_full().await
        {
            let mut response = refusal(StatusCode::SERVICE_UNAVAILABLE, "too many sessions; try again later");
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            return Ok(response);
        }
        Ok(hold_until_sent((in_flight, permits), response))
    }

    /// Returns the response that refuses a call for which the sender lacks scopes. Only a status of HTTP makes clients request more.
    fn missing_scopes(&self, extensions: &Extensions, body: &[u8]) -> Option<Response> {
        let (protection, principal) = (self.state.protection()?, extensions.get::<Principal>());
        let call: Call<'_> = serde_json::from_slice(body).ok()?;
        let scopes = self.state.config().missing_scopes(&call.params.name, principal)?;
        Some(protection.require_scopes(scopes))
    }

    /// Returns the id of the request if another request of the session that has no response yet has the same id.
    async fn repeated_id(
        &self,
        headers: &HeaderMap,
        caller: Caller,
        message: &Message<'_>,
    ) -> Option<RequestId> {
        let session = headers.get(SESSION_HEADER)?.to_str().ok()?.into();
        message.method.as_ref()?;
        let id = message.id?.get();
        // Only strings and numbers are ids. Parsing a large list or object would take several times its size.
        let is_scalar = id.starts_with(|c: char| matches!(c, '"' | '-' | '0'..='9'));
        let id = is_scalar.then(|| serde_json::from_str(id).ok())??;
        let is_repeated = self.sessions.belongs_to(&session, caller).await
            && self.sessions.is_in_flight(&session, &id).await;
        is_repeated.then_some(id)
    }

    /// Returns `true` if the request names no session, or one of this caller.
    async fn has_session(&self, headers: &HeaderMap, caller: Caller) -> bool {
        match headers.get(SESSION_HEADER).map(HeaderValue::to_str) {
            None => true,
            Some(Ok(id)) => self.sessions.belongs_to(&id.into(), caller).await,
            Some(Err(_)) => false,
        }
    }
}

/// The parts of a message that decide how it is limited.
#[derive(Default, Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
}

/// The name of the tool of a call.
#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    params: CallParams<'a>,
}

#[derive(Deserialize)]
struct CallParams<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

impl Message<'_> {
    /// Returns `true` for a request and for what is no message. A notification has no id, and a response no method.
    fn is_request(&self) -> bool {
        self.id.is_some() == self.method.is_some()
    }
}

/// Returns the response of the SDK to a request that names an unknown session.
fn unknown_session() -> Response {
    refusal(StatusCode::NOT_FOUND, "Not Found: Session not found")
}

/// Returns the JSON-RPC error for a body that is not a message.
fn invalid_message(body: &[u8]) -> Response {
    let (code, message) = match serde_json::from_slice::<IgnoredAny>(body) {
        Err(_) => (-32700, "the body is not valid JSON"),
        Ok(_) if body.trim_ascii_start().starts_with(b"[") => {
            (-32600, "batches are not supported; send each message on its own")
        }
        Ok(_) => (-32600, "the body is not a JSON-RPC message"),
    };
    json_rpc_error(&Value::Null, code, message)
}

fn json_rpc_error(id: &Value, code: i32, message: &str) -> Response {
    let error = json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } });
    json_response(StatusCode::BAD_REQUEST, error)
}

fn refusal(status: StatusCode, message: &str) -> Response {
    (status, message.to_owned()).into_response()
}
