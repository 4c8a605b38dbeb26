//! The route of streamable HTTP, with authorization and limits of every request.

use std::sync::Arc;
use std::task::Context;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Router, middleware};
use futures_util::StreamExt;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use secrecy::{ExposeSecret, SecretString};
use serde::de::IgnoredAny;
use serde_json::json;
use subtle::{Choice, ConstantTimeEq};
use tokio::runtime::Handle;

use super::config::HttpConfig;
use super::handler::{Handler, ServerState};
use super::session_manager::BoundedSessionManager;
use super::shutdown::{Shutdown, ShutdownPhase};

struct Guard {
    config: HttpConfig,
    sessions: Arc<BoundedSessionManager>,
    shutdown: Shutdown,
}

/// Returns the route of streamable HTTP.
pub(super) fn router(state: Arc<ServerState>, config: HttpConfig) -> Router {
    let transport_config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(config.allowed_hosts.clone())
        .with_allowed_origins(config.allowed_origins.clone())
        .enforce_origin_validation()
        .with_max_request_body_bytes(config.max_body_bytes);
    let shutdown = state.shutdown().clone();
    if tokio::runtime::Handle::try_current().is_ok() {
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
    let guard = Arc::new(Guard { config, sessions, shutdown });
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

async fn guard_request(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    if !is_authorized(&guard.config.bearer_tokens, request.headers()) {
        let has_token = request.headers().contains_key(header::AUTHORIZATION);
        let challenge = if has_token { r#"Bearer error="invalid_token""# } else { "Bearer" };
        let mut response = refusal(StatusCode::UNAUTHORIZED, "missing or invalid bearer token");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        return response;
    }
    if guard.shutdown.has_reached(ShutdownPhase::Draining) {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down");
    }
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    let in_flight = guard.shutdown.track_request();
    let (head, body) = request.into_parts();
    let body = match read_body(&guard.config, body).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let is_json = is_json(&head.headers);
    let response = next.run(Request::from_parts(head, Body::from(body.clone()))).await;
    if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE && is_json {
        return invalid_message(&body);
    }
    if response.status() == StatusCode::INTERNAL_SERVER_ERROR && guard.sessions.is_full().await {
        let mut response = refusal(StatusCode::SERVICE_UNAVAILABLE, "too many sessions; try again later");
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        return response;
    }
    response.map(|body| {
        Body::from_stream(body.into_data_stream().map(move |chunk| {
            let _in_flight = &in_flight;
            chunk
        }))
    })
}

/// Returns `true` if the request has one of the tokens, or there are none. Compares in constant time, so that the time does
/// not leak parts of a token.
fn is_authorized(tokens: &[SecretString], headers: &HeaderMap) -> bool {
    if tokens.is_empty() {
        return true;
    }
    let sent = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let (scheme, sent) = sent.split_at(sent.len().min("Bearer ".len()));
    let is_known = tokens.iter().fold(Choice::from(0), |is_known, token| {
        is_known | token.expose_secret().as_bytes().ct_eq(sent.trim_ascii())
    });
    scheme.eq_ignore_ascii_case(b"Bearer ") && bool::from(is_known)
}

/// Reads a body within the limits of size and time.
async fn read_body(config: &HttpConfig, body: Body) -> Result<Bytes, Response> {
    let limit = config.max_body_bytes;
    let too_large = || {
        let message = format!("the request body exceeds the limit of {limit} bytes");
        refusal(StatusCode::PAYLOAD_TOO_LARGE, &message)
    };
    let announced = body.size_hint().lower();
    if announced > limit as u64 {
        return Err(too_large());
    }
    let mut chunks = body.into_data_stream();
    let mut body = Vec::with_capacity(usize::try_from(announced).unwrap_or_default().min(1 << 16));
    loop {
        let chunk = tokio::time::timeout(config.read_timeout, chunks.next()).await;
        let chunk = chunk
            .map_err(|_| refusal(StatusCode::REQUEST_TIMEOUT, "the request body did not arrive in time"))?;
        match chunk {
            Some(Ok(chunk)) if body.len() + chunk.len() > limit => return Err(too_large()),
            Some(Ok(chunk)) => body.extend_from_slice(&chunk),
            Some(Err(_)) => return Err(refusal(StatusCode::BAD_REQUEST, "the request body is incomplete")),
            None => return Ok(body.into()),
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    content_type.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
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
    let error = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": message } });
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (StatusCode::BAD_REQUEST, headers, error.to_string()).into_response()
}

fn refusal(status: StatusCode, message: &str) -> Response {
    (status, message.to_owned()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_known_tokens() {
        let tokens = [SecretString::from("t-1"), SecretString::from("t-22")];
        let table = [
            (Some("Bearer t-1"), true),
            (Some("Bearer t-22"), true),
            (Some("bearer  t-1 "), true),
            (Some("Bearer t-2"), false),
            (Some("Bearer t-1x"), false),
            (Some("Bearer "), false),
            (Some("t-1"), false),
            (Some("Basic t-1"), false),
            (Some(""), false),
            (None, false),
        ];
        for (sent, is_valid) in table {
            let mut headers = HeaderMap::new();
            if let Some(sent) = sent {
                headers.insert(header::AUTHORIZATION, HeaderValue::from_static(sent));
            }
            assert_eq!(is_authorized(&tokens, &headers), is_valid, "{sent:?}");
            assert!(is_authorized(&[], &headers));
        }
    }
}
