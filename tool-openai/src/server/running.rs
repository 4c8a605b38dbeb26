//! A server at work.

use std::io;
use std::net::SocketAddr;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A server at work, made by [`Server::spawn`](super::Server::spawn). Dropping it closes the port; a request under
/// way is still answered.
#[derive(Debug)]
#[must_use = "the port is closed when it is dropped"]
pub struct RunningServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<io::Result<()>>,
}

impl RunningServer {
    pub(super) fn start(listener: TcpListener, router: Router) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = axum::serve(listener, router).with_graceful_shutdown(async {
            let _ = stopped.await;
        });
        Ok(Self { address, stop: Some(stop), task: tokio::spawn(serving.into_future()) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a client takes as its base URL, such as `http://127.0.0.1:8080/v1`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Takes no more requests, and waits for those under way.
    ///
    /// # Errors
    ///
    /// The server had failed.
    pub async fn stop(mut self) -> io::Result<()> {
        self.stop.take();
        (&mut self.task).await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
