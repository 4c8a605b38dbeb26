//! Which URL takes what.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, middleware};
use serde_json::Value;

use super::endpoint::Endpoint;
use super::error::ApiError;
use super::{chat, http, responses};

type Shared = State<Arc<Endpoint>>;
type Part = Result<Path<String>, PathRejection>;

pub(super) fn of(endpoint: Arc<Endpoint>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(complete))
        .route("/v1/responses", post(create_response))
        .route("/v1/responses/{id}", get(response).delete(delete_response))
        .route(
            "/v1/models",
            get(async |State(endpoint): Shared| http::json(StatusCode::OK, &endpoint.models())),
        )
        // A name may have slashes in it.
        .route("/v1/models/{*name}", get(model))
        .fallback(async || nothing_there())
        .method_not_allowed_fallback(async || {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "this URL takes another method")
        })
        .layer(middleware::from_fn_with_state(Arc::clone(&endpoint), http::serve))
        .with_state(endpoint)
}

async fn complete(State(endpoint): Shared, request: Request) -> Result<Response, ApiError> {
    let body = http::read_body(&endpoint, request).await?;
    chat::complete(&endpoint, &body).await
}

async fn create_response(State(endpoint): Shared, request: Request) -> Result<Response, ApiError> {
    let body = http::read_body(&endpoint, request).await?;
    responses::create(&endpoint, &body).await
}

async fn response(State(endpoint): Shared, id: Part) -> Response {
    answer(id, |id| responses::retrieve(&endpoint, id))
}

async fn delete_response(State(endpoint): Shared, id: Part) -> Response {
    answer(id, |id| responses::delete(&endpoint, id))
}

async fn model(State(endpoint): Shared, name: Part) -> Response {
    answer(name, |name| endpoint.model(name))
}

/// What is looked for by a part of the URL; one that is no text names nothing.
fn answer(part: Part, find: impl FnOnce(&str) -> Result<Value, ApiError>) -> Response {
    let found = match part {
        Ok(Path(part)) => find(&part),
        Err(_) => Err(nothing_there()),
    };
    match found {
        Ok(found) => http::json(StatusCode::OK, &found),
        Err(error) => error.into_response(),
    }
}

fn nothing_there() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "there is no such URL here")
}
