//! A server of this project that is asked by its own client: what it is sent is checked by the published schemas, where
//! they are at hand.

use std::net::SocketAddr;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tool_openai::server::Server;

use super::schema::{Api, judge};

/// A server at work, until it is dropped.
#[derive(Debug)]
pub struct CheckedServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl CheckedServer {
    /// Serves, with a check of every request.
    pub async fn of(server: Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = server.router().layer(from_fn(check));
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, task }
    }

    /// Returns the base URL that a client is given.
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
    match Api::of_path(head.uri.path()).map_or(Ok(()), |api| judge(api, &body)) {
        Ok(()) => next.run(Request::from_parts(head, Body::from(body))).await,
        // The test fails with these words.
        Err(why) => {
            (StatusCode::BAD_REQUEST, format!("the API would refuse the request: {why}")).into_response()
        }
    }
}
