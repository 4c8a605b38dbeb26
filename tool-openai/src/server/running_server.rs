//! A running server.

use std::net::SocketAddr;
use std::time::Duration;
use std::{fmt, io};

use tool_http::server::RunningServer as HttpServer;

/// A running server, returned by [`Server::spawn`](super::Server::spawn).
///
/// Dropping it closes the port; requests in flight are still answered.
#[must_use = "dropping it closes the port"]
pub struct RunningServer(pub(super) HttpServer);

impl RunningServer {
    /// Returns the address that the server listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Returns the base URL for clients, such as `http://127.0.0.1:8080/v1`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address())
    }

    /// Stops accepting requests and waits until the requests in flight are answered, including streams.
    ///
    /// # Errors
    ///
    /// Returns an error if the server has failed.
    pub async fn stop(self) -> io::Result<()> {
        self.0.stop().await
    }

    /// Stops like [`stop`](Self::stop), but aborts the requests that are still in flight after the timeout.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tool_core::testing::ScriptedModel;
    /// use tool_openai::server::Server;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// let server = Server::new().model("offline", ScriptedModel::new()).spawn("127.0.0.1:0").await?;
    /// server.stop_within(Duration::from_secs(10)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the server has failed.
    pub async fn stop_within(self, timeout: Duration) -> io::Result<()> {
        self.0.stop_within(timeout).await
    }
}

impl fmt::Debug for RunningServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningServer").field("address", &self.address()).finish_non_exhaustive()
    }
}
