//! A server of this project for tests with its own client. Requests are checked against the published schemas.

use std::net::SocketAddr;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tool_openai::server::Server;

use super::schema::{Api, validate_request};

/// A running server that stops when it is dropped.
#[derive(Debug)]
pub struct CheckedServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl CheckedServer {
    /// Starts a server that checks every request.
    pub async fn start(server: Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().fallback_service(server.into_service()).layer(from_fn(check));
        // Otherwise, the second part of a response waits for the acknowledgement of the first.
        let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, task }
    }

    /// Returns the base URL for a client.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }
}

impl Drop for CheckedServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn check(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    match Api::from_path(head.uri.path()).map_or(Ok(()), |api| validate_request(api, &body)) {
        Ok(()) => next.run(Request::from_parts(head, Body::from(body))).await,
        // The test fails with this message.
        Err(why) => {
            (StatusCode::BAD_REQUEST, format!("the API would refuse the request: {why}")).into_response()
        }
    }
}
