//! What stands around every request over HTTP: who may ask, and how much.

use std::sync::Arc;

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

use super::session::{Session, Shared};
use super::sessions::Sessions;
use super::settings::HttpSettings;
use super::stopping::{Stop, Stopping};

struct Guard {
    settings: HttpSettings,
    sessions: Arc<Sessions>,
    stopping: Stopping,
}

/// The route of streamable HTTP.
pub(super) fn router(shared: Arc<Shared>, settings: HttpSettings) -> Router {
    let config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(settings.hosts.clone())
        .with_allowed_origins(settings.origins.clone())
        .enforce_origin_validation()
        .with_max_request_body_bytes(settings.longest_body);
    let stopping = shared.stopping().clone();
    if tokio::runtime::Handle::try_current().is_ok() {
        let (stopping, streams) = (stopping.clone(), config.cancellation_token.clone());
        tokio::spawn(async move {
            stopping.reached(Stop::Streams).await;
            streams.cancel();
        });
    }
    let sessions = Sessions::new(&settings);
    let service = StreamableHttpService::new(
        move || Ok(Session::new(Arc::clone(&shared))),
        Arc::clone(&sessions),
        config,
    );
    let guard = Arc::new(Guard { settings, sessions, stopping });
    Router::new().route_service("/mcp", service).layer(middleware::from_fn_with_state(guard, serve))
}

async fn serve(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    if !has_token(&guard.settings.tokens, request.headers()) {
        let is_wrong = request.headers().contains_key(header::AUTHORIZATION);
        let challenge = if is_wrong { r#"Bearer error="invalid_token""# } else { "Bearer" };
        let mut response = refusal(StatusCode::UNAUTHORIZED, "a bearer token is needed");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        return response;
    }
    if guard.stopping.is(Stop::Requests) {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "the server stops");
    }
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    let under_way = guard.stopping.request();
    let (head, body) = request.into_parts();
    let body = match read(&guard.settings, body).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let is_json = says_json(&head.headers);
    let response = next.run(Request::from_parts(head, Body::from(body.clone()))).await;
    if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE && is_json {
        return no_message(&body);
    }
    if response.status() == StatusCode::INTERNAL_SERVER_ERROR && guard.sessions.are_full().await {
        let mut response =
            refusal(StatusCode::SERVICE_UNAVAILABLE, "there are too many sessions; try again later");
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        return response;
    }
    response.map(|body| {
        Body::from_stream(body.into_data_stream().map(move |piece| {
            let _held = &under_way;
            piece
        }))
    })
}

/// Compared in a time that tells nothing of what is right in a wrong token.
fn has_token(tokens: &[SecretString], headers: &HeaderMap) -> bool {
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

/// A body, as long as it may be and as long as it keeps coming.
async fn read(settings: &HttpSettings, body: Body) -> Result<Bytes, Response> {
    let limit = settings.longest_body;
    let too_long = || {
        let why = format!("the request is longer than the {limit} bytes that are read here");
        refusal(StatusCode::PAYLOAD_TOO_LARGE, &why)
    };
    let told = body.size_hint().lower();
    if told > limit as u64 {
        return Err(too_long());
    }
    let mut pieces = body.into_data_stream();
    let mut body = Vec::with_capacity(usize::try_from(told).unwrap_or_default().min(1 << 16));
    loop {
        let piece = tokio::time::timeout(settings.read_timeout, pieces.next()).await.map_err(|_| {
            refusal(StatusCode::REQUEST_TIMEOUT, "the request did not come to its end in time")
        })?;
        match piece {
            Some(Ok(piece)) if body.len() + piece.len() > limit => return Err(too_long()),
            Some(Ok(piece)) => body.extend_from_slice(&piece),
            Some(Err(_)) => return Err(refusal(StatusCode::BAD_REQUEST, "the request broke off")),
            None => return Ok(body.into()),
        }
    }
}

fn says_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

/// What JSON-RPC says to a body that is no message of it.
fn no_message(body: &[u8]) -> Response {
    let (code, message) = match serde_json::from_slice::<IgnoredAny>(body) {
        Err(_) => (-32700, "the body is no JSON"),
        Ok(_) if body.trim_ascii_start().starts_with(b"[") => {
            (-32600, "batches are not taken: send each message alone")
        }
        Ok(_) => (-32600, "the body is no JSON-RPC message"),
    };
    let error = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": message } });
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (StatusCode::BAD_REQUEST, headers, error.to_string()).into_response()
}

fn refusal(status: StatusCode, why: &str) -> Response {
    (status, why.to_owned()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens() {
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
        for (sent, is_right) in table {
            let mut headers = HeaderMap::new();
            if let Some(sent) = sent {
                headers.insert(header::AUTHORIZATION, HeaderValue::from_static(sent));
            }
            assert_eq!(has_token(&tokens, &headers), is_right, "{sent:?}");
            assert!(has_token(&[], &headers));
        }
    }
}
