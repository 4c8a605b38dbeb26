//! The routes of a server, as a service for other applications.
//!
//! The types of an `HttpService` come from `http`, `http-body` and `tower-service`, because the version of our router must not bind
//! applications.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::{BoxError, Router, body::Body};
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use tower_service::Service;

/// The routes of a server, to serve them as part of another application, such as `app.nest_service("/ai", service)` with an
/// `axum::Router`.
///
/// Set `TCP_NODELAY` on the connections of the application, with axum by `ListenerExt::tap_io`: otherwise, parts of a stream can wait
/// 40 ms.
///
/// Its requests, responses and bodies have the types of `http`, `http-body` and `tower-service`, which all major versions of axum and
/// hyper since 1.0 share.
#[derive(Clone)]
pub struct HttpService(Router);

/// The body of a response of an [`HttpService`].
#[derive(Debug)]
pub struct ResponseBody(Body);

impl HttpService {
    /// Creates a service of these routes.
    #[must_use]
    pub fn new(router: Router) -> Self {
        Self(router)
    }
}

impl<B> Service<Request<B>> for HttpService
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Service::<Request<B>>::poll_ready(&mut self.0, context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let response = self.0.call(request);
        Box::pin(async { Ok(response.await?.map(ResponseBody)) })
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.0).poll_frame(context).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

impl fmt::Debug for HttpService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpService").finish_non_exhaustive()
    }
}
