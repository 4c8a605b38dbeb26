//! Admission of requests, and the errors that are sent.
//!
//! Decisions come from the page's own origin alone, while the streams take every origin that the servers take, because development servers
//! of frontends have ports of their own.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use serde::de::DeserializeOwned;
use tool_core::memory::MemoryError;
use tool_http::server::{
    Access, Caller, Limiter, Limits, PermitLimit, Rejection, SenderPermit, SenderPermits, require_json,
    respond_admitted,
};

use crate::auth::{Authenticate, Principal, Right};

/// The number of streams that are read at once, by all senders and by each of them.
const MAX_STREAMS: usize = 1_000;
const MAX_STREAMS_OF_SENDER: usize = 100;

/// Who is admitted.
#[derive(Clone, Default)]
pub(crate) struct Admission {
    pub(crate) access: Access,
    pub(crate) principals: Vec<(Caller, Principal)>,
    pub(crate) authentication: Option<Arc<dyn Authenticate>>,
}

/// The rules of admission of one router.
pub(crate) struct Guard {
    admission: Admission,
    limiter: Limiter,
    /// Streams are long, so they are not counted as requests.
    streams: SenderPermits,
    /// Browsers may send requests only from the server's own pages.
    is_same_origin: bool,
}

/// The limits of a router, and of its server.
pub(crate) fn limits() -> Limits {
    Limits { max_total_body_bytes: 64 << 20, max_concurrent_requests: Some(1_000), ..Limits::default() }
}

/// An error as plain text, which clients show as it is.
#[derive(Debug)]
pub(crate) struct HttpError(pub(crate) StatusCode, pub(crate) String);

impl HttpError {
    pub(crate) fn bad_request(text: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, text.into())
    }

    pub(crate) fn conflict(text: impl Into<String>) -> Self {
        Self(StatusCode::CONFLICT, text.into())
    }

    pub(crate) fn unknown_run() -> Self {
        Self(StatusCode::NOT_FOUND, "there is no such run".to_owned())
    }

    /// The reason of the store is for the operator, not for the reader.
    pub(crate) fn store() -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE, "the store is not available; try again later".to_owned())
    }

    /// The error of a sender that has too many of something, or of all senders together.
    pub(crate) fn too_many(limit: PermitLimit, of_sender: impl FnOnce(usize) -> String) -> Self {
        match limit {
            PermitLimit::All => Rejection::Overloaded.into(),
            PermitLimit::Sender(max) => Self(StatusCode::TOO_MANY_REQUESTS, of_sender(max)),
        }
    }

    pub(crate) fn internal() -> Self {
        Self(StatusCode::INTERNAL_SERVER_ERROR, "internal error".to_owned())
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

impl From<MemoryError> for HttpError {
    fn from(_: MemoryError) -> Self {
        Self::store()
    }
}

/// Middleware that admits requests for data. Handlers find the [`Principal`] in the extensions of the request.
pub(crate) async fn admit(State(guard): State<Arc<Guard>>, mut request: Request, next: Next) -> Response {
    let permit = match guard.identify(&mut request).await {
        Ok(_) => guard.limiter.begin_request().map_err(Rejection::into_response),
        Err(refused) => Err(refused),
    };
    respond(permit, request, next).await
}

/// Like [`admit`], for requests whose response is a stream.
pub(crate) async fn admit_stream(
    State(guard): State<Arc<Guard>>,
    mut request: Request,
    next: Next,
) -> Response {
    let permit = match guard.identify(&mut request).await {
        Ok(reader) => guard.begin_stream(reader).map_err(IntoResponse::into_response),
        Err(refused) => Err(refused),
    };
    respond(permit, request, next).await
}

async fn respond(permit: Result<impl Send + 'static, Response>, request: Request, next: Next) -> Response {
    with_headers(match permit {
        Ok(permit) => {
            respond_admitted(permit, next.run(request), || HttpError::internal().into_response()).await
        }
        Err(refused) => refused,
    })
}

/// Middleware that admits requests for the page itself, which contains no data. A link of another page may lead to it.
pub(crate) async fn admit_page(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    with_headers(match guard.admission.access.admit_without_key(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(rejection) => rejection.into_response(),
    })
}

impl Guard {
    pub(crate) fn new(admission: Admission, is_same_origin: bool) -> Arc<Self> {
        let streams = SenderPermits::new(MAX_STREAMS, MAX_STREAMS_OF_SENDER);
        Arc::new(Self { admission, limiter: Limiter::new(limits()), streams, is_same_origin })
    }

    /// Checks a request, and adds its sender to its extensions. Returns the sender's name.
    async fn identify(&self, request: &mut Request) -> Result<Arc<str>, Response> {
        let sender = self.sender(request).await.map_err(Rejection::into_response)?;
        let unknown =
            "not logged in, or the login is over; log in, and send the cookies or headers of the login";
        let sender =
            sender.ok_or_else(|| HttpError(StatusCode::UNAUTHORIZED, unknown.to_owned()).into_response())?;
        let name = sender.shared_name();
        request.extensions_mut().insert(sender);
        Ok(name)
    }

    /// Returns the sender of a request that may be handled, or `None` if the program's own authentication finds none.
    async fn sender(&self, request: &mut Request) -> Result<Option<Principal>, Rejection> {
        let Admission { access, principals, authentication } = &self.admission;
        let (uri, headers) = (request.uri(), request.headers());
        access.admit_without_key(uri, headers)?;
        if self.is_same_origin {
            Access::check_same_origin(request.method(), headers)?;
        }
        let sender = match authentication {
            Some(authentication) => authentication.authenticate(headers).await,
            None => {
                let caller = access.admit(uri, headers)?;
                let known = principals.iter().find(|(known, _)| *known == caller);
                Some(known.map_or_else(Principal::local, |(_, principal)| principal.clone()))
            }
        };
        require_json(request)?;
        Ok(sender)
    }

    /// Counts a stream as open until the permit is dropped.
    fn begin_stream(&self, reader: Arc<str>) -> Result<SenderPermit, HttpError> {
        let permit = self.streams.acquire(Arc::clone(&reader));
        permit.map_err(|limit| {
            let too_many = |max| format!("`{reader}` reads {max} streams already; close some of them");
            HttpError::too_many(limit, too_many)
        })
    }

    /// Reads the body of a request as JSON.
    pub(crate) async fn read_json<T: DeserializeOwned>(&self, request: Request) -> Result<T, HttpError> {
        let body = self.limiter.read_body(request.into_body()).await?;
        serde_json::from_slice(&body.bytes)
            .map_err(|error| HttpError::bad_request(format!("invalid request: {error}")))
    }
}

/// Lets only senders with a right use the methods of a route.
pub(crate) fn requires<S>(right: Right, methods: MethodRouter<S>) -> MethodRouter<S>
where
    S: Clone + Send + Sync + 'static,
{
    methods.route_layer(from_fn_with_state(right, check_right))
}

async fn check_right(
    State(right): State<Right>,
    Extension(sender): Extension<Principal>,
    request: Request,
    next: Next,
) -> Result<Response, HttpError> {
    sender.check(right)?;
    Ok(next.run(request).await)
}

impl Principal {
    /// Checks that the sender has a right.
    pub(crate) fn check(&self, right: Right) -> Result<(), HttpError> {
        if self.may(right) {
            return Ok(());
        }
        let right = format!("{right:?}").to_lowercase();
        Err(HttpError(StatusCode::FORBIDDEN, format!("`{}` may not {right}", self.name())))
    }
}

/// Adds the headers that bound what a browser does with a response.
fn with_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.extend(HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    response
}

/// The policy names what the page may load and do: only the files and the data of this server, and no text becomes markup or script.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];
