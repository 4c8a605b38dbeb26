//! The routes of the server.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router, middleware};
use tokio::sync::OwnedSemaphorePermit;
use tool_http::random_id;
use tool_http::server::{Caller, SenderPermit, json_response, require_json, respond_admitted};

use super::error::ApiError;
use super::state::ServerState;
use super::{chat, responses};

type SharedState = State<Arc<ServerState>>;
type PathParam = Result<Path<String>, PathRejection>;

pub(super) fn router(state: Arc<ServerState>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat::create))
        .route("/v1/responses", post(responses::create))
        .route("/v1/responses/{id}", get(get_response).delete(delete_response))
        .route("/v1/models", get(list_models))
        // A name may contain slashes.
        .route("/v1/models/{*name}", get(get_model))
        .fallback(async || unknown_url())
        .method_not_allowed_fallback(async || {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "this URL does not support this method")
        })
        .layer(middleware::from_fn_with_state(Arc::clone(&state), guard))
        .with_state(state)
}

/// Middleware that admits requests, limits those in flight, catches panics and adds the request id. Handlers find the
/// [`Caller`] and its user in the extensions of the request.
async fn guard(State(state): State<Arc<ServerState>>, mut request: Request, next: Next) -> Response {
    let mut response = match admit(&state, &mut request) {
        Ok(permits) => {
            respond_admitted(permits, next.run(request), || ApiError::internal().into_response()).await
        }
        Err(error) => error.into_response(),
    };
    if let Ok(id) = HeaderValue::try_from(random_id("req_")) {
        response.headers_mut().insert("x-request-id", id);
    }
    response
}

/// The permits of a request in flight: of all requests, and of those with its key.
type Permits = (Option<OwnedSemaphorePermit>, Option<SenderPermit>);

/// Admits a request. Returns its permits, which are held until the response is sent; until then, or until the caller disconnects, its
/// run is driven.
fn admit(state: &ServerState, request: &mut Request) -> Result<Permits, ApiError> {
    let caller = state.config.access.admit(request.uri(), request.headers())?;
    require_json(request)?;
    // Callers without keys cannot be told apart.
    let of_key = (caller != Caller::ANYONE)
        .then(|| state.of_keys.acquire(caller.derive_id("requests in flight")))
        .transpose()
        .map_err(ApiError::too_many_requests)?;
    // Users behind one key, such as that of a proxy, have nothing in common.
    let user = state.user_of(request.headers());
    let caller = user.as_ref().map_or(caller, |user| caller.with_user(user.as_str()));
    request.extensions_mut().insert(caller);
    request.extensions_mut().insert(user);
    Ok((state.limiter.begin_request()?, of_key))
}

async fn get_response(
    State(state): SharedState,
    Extension(caller): Extension<Caller>,
    id: PathParam,
) -> Response {
    lookup(id, |id| responses::retrieve(&state, caller, id))
}

async fn delete_response(
    State(state): SharedState,
    Extension(caller): Extension<Caller>,
    id: PathParam,
) -> Response {
    lookup(id, |id| responses::delete(&state, caller, id))
}

async fn list_models(State(state): SharedState) -> Response {
    json_response(StatusCode::OK, state.models_json())
}

async fn get_model(State(state): SharedState, name: PathParam) -> Response {
    lookup(name, |name| Ok(json_response(StatusCode::OK, &state.model_json(name)?)))
}

/// Responds with what `find` returns for a parameter of the path. A parameter that is not valid UTF-8 is an unknown URL.
fn lookup(param: PathParam, find: impl FnOnce(&str) -> Result<Response, ApiError>) -> Response {
    let found = match param {
        Ok(Path(param)) => find(&param),
        Err(_) => Err(unknown_url()),
    };
    found.unwrap_or_else(IntoResponse::into_response)
}

fn unknown_url() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "unknown URL")
}
