//! Admission of requests, and the errors that are sent.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use serde::de::DeserializeOwned;
use tool_http::server::{Access, Caller, Limiter, Limits, Rejection, hold_until_sent, require_json};

use crate::auth::{Authenticate, Principal, Right};

/// The rules of admission of one router.
pub(crate) struct Guard {
    pub(crate) access: Access,
    pub(crate) principals: Vec<(Caller, Principal)>,
    pub(crate) authentication: Option<Arc<dyn Authenticate>>,
    pub(crate) limiter: Limiter,
    /// Browsers may send requests only from the server's own pages.
    pub(crate) is_same_origin: bool,
}

/// The largest body of a request to the page.
pub(crate) const LIMITS: Limits = Limits {
    max_body_bytes: 4 << 20,
    max_total_body_bytes: 64 << 20,
    max_concurrent_requests: Some(1_000),
    max_connections: 1_024,
    read_timeout: std::time::Duration::from_secs(30),
};

/// An error as plain text, which clients show as it is.
#[derive(Debug)]
pub(crate) struct HttpError(pub(crate) StatusCode, pub(crate) String);

impl HttpError {
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self(status, text.into())
    }

    pub(crate) fn bad_request(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    pub(crate) fn unknown_run() -> Self {
        Self::new(StatusCode::NOT_FOUND, "there is no such run")
    }

    /// The reason of the store is for the operator, not for the reader.
    pub(crate) fn store() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the store is not available; try again later")
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

impl From<Rejection> for HttpError {
    fn from(rejection: Rejection) -> Self {
        Self(rejection.status(), rejection.to_string())
    }
}

/// Middleware that admits requests for data. Handlers find the [`Principal`] in the extensions of the request.
pub(crate) async fn admit(State(guard): State<Arc<Guard>>, mut request: Request, next: Next) -> Response {
    let permit = match guard.admit(&mut request).await {
        Ok(permit) => permit,
        Err(error) => return with_headers(error.into_response()),
    };
    let response = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let response = response.unwrap_or_else(|_| {
        HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error").into_response()
    });
    with_headers(hold_until_sent(permit, response))
}

/// Middleware that admits requests for the page itself, which contains no data. A link of another page may lead to it.
pub(crate) async fn admit_page(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    match guard.access.admit_without_key(request.uri(), request.headers()) {
        Ok(()) => with_headers(next.run(request).await),
        Err(rejection) => with_headers(HttpError::from(rejection).into_response()),
    }
}

impl Guard {
    async fn admit(&self, request: &mut Request) -> Result<impl Send + use<>, HttpError> {
        let (uri, headers) = (request.uri(), request.headers());
        let principal = match &self.authentication {
            Some(authentication) => {
                self.access.admit_without_key(uri, headers)?;
                self.check_site(request.method(), headers)?;
                authentication.authenticate(headers).await.ok_or(Rejection::Key { has_credentials: false })?
            }
            None => {
                let caller = self.access.admit(uri, headers)?;
                self.check_site(request.method(), headers)?;
                let known = self.principals.iter().find(|(known, _)| *known == caller);
                known.map_or_else(Principal::local, |(_, principal)| principal.clone())
            }
        };
        require_json(request)?;
        request.extensions_mut().insert(principal);
        Ok(self.limiter.begin_request()?)
    }

    /// Refuses requests that a browser sends for another page, even one of another port of this host.
    fn check_site(&self, method: &Method, headers: &HeaderMap) -> Result<(), Rejection> {
        if !self.is_same_origin {
            return Ok(());
        }
        let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let is_own_site = match text(HeaderName::from_static("sec-fetch-site")) {
            None | Some("same-origin") => true,
            Some("none") => method == Method::GET,
            Some(_) => false,
        };
        let host = text(header::HOST).unwrap_or_default();
        let is_own_origin = text(header::ORIGIN).is_none_or(|origin| {
            origin.split_once("://").is_some_and(|(_, of)| of.eq_ignore_ascii_case(host))
        });
        if is_own_site && is_own_origin { Ok(()) } else { Err(Rejection::Origin) }
    }
}

/// Adds the headers that bound what a browser does with a response.
fn with_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// What the page may load and do: only the files and the data of this server, and no text becomes markup or script.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// The sender of the request, as an argument of handlers.
#[derive(Debug)]
pub(crate) struct Sender(pub(crate) Principal);

impl Sender {
    /// Checks that the sender has a right.
    pub(crate) fn check(&self, right: Right) -> Result<(), HttpError> {
        if self.0.may(right) {
            return Ok(());
        }
        let right = format!("{right:?}").to_lowercase();
        Err(HttpError::new(StatusCode::FORBIDDEN, format!("`{}` may not {right}", self.0.name())))
    }
}

impl<S: Sync> FromRequestParts<S> for Sender {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, HttpError> {
        // The guard is in front of every handler.
        let principal = parts.extensions.get().cloned();
        principal.map(Self).ok_or_else(|| Rejection::Key { has_credentials: false }.into())
    }
}

/// Reads the body of a request as JSON.
pub(crate) async fn read_json<T: DeserializeOwned>(guard: &Guard, request: Request) -> Result<T, HttpError> {
    let body = guard.limiter.read_body(request.into_body()).await?;
    serde_json::from_slice(&body.bytes)
        .map_err(|error| HttpError::bad_request(format!("invalid request: {error}")))
}
