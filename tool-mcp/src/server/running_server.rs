//! A running HTTP server.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tool_http::server::RunningServer as HttpServer;

/// A running server, returned by [`Server::spawn`](super::Server::spawn).
///
/// Dropping it closes the port; calls in flight are still answered.
#[derive(Debug)]
#[must_use = "dropping it closes the port"]
pub struct RunningServer(pub(super) HttpServer);

impl RunningServer {
    /// Returns the address that the server listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Returns the URL for hosts, such as `http://127.0.0.1:8080/mcp`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address())
    }

    /// Stops accepting requests, waits for the calls in flight, and ends the sessions.
    ///
    /// # Errors
    ///
    /// Returns an error if the server has failed.
    pub async fn stop(self) -> io::Result<()> {
        self.0.stop().await
    }

    /// Stops like [`stop`](Self::stop), but cancels the calls that are still in flight after the timeout.
    ///
    /// # Errors
    ///
    /// Returns an error if the server has failed.
    pub async fn stop_within(self, timeout: Duration) -> io::Result<()> {
        self.0.stop_within(timeout).await
    }
}
