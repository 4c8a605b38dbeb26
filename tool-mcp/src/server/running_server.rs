//! A running HTTP server: the accept loop and graceful shutdown.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::shutdown::{Shutdown, ShutdownPhase};

/// The pause after a failed `accept`, which usually means that there are too many open connections.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_secs(1);

/// A running server, returned by [`Server::spawn`](super::Server::spawn).
///
/// Dropping it closes the port; calls in flight are still answered.
#[derive(Debug)]
#[must_use = "dropping it closes the port"]
pub struct RunningServer {
    address: SocketAddr,
    shutdown: Shutdown,
    task: JoinHandle<()>,
}

impl RunningServer {
    pub(super) fn start(
        listener: TcpListener,
        router: Router,
        read_timeout: Duration,
        shutdown: Shutdown,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let task = tokio::spawn(serve(listener, router, read_timeout, shutdown.clone()));
        Ok(Self { address, shutdown, task })
    }

    /// Returns the address that the server listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL for hosts, such as `http://127.0.0.1:8080/mcp`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Stops accepting requests, waits for the calls in flight, and ends the sessions.
    ///
    /// # Errors
    ///
    /// Returns an error if the server has failed.
    pub async fn stop(mut self) -> io::Result<()> {
        self.shutdown.advance_to(ShutdownPhase::Draining);
        self.stopped().await
    }

    /// Stops like [`stop`](Self::stop), but cancels the calls that are still in flight after the timeout.
    ///
    /// # Errors
    ///
    /// Returns an error if the server has failed.
    pub async fn stop_within(mut self, timeout: Duration) -> io::Result<()> {
        self.shutdown.advance_to(ShutdownPhase::Draining);
        if let Ok(stopped) = tokio::time::timeout(timeout, self.stopped()).await {
            return stopped;
        }
        self.shutdown.advance_to(ShutdownPhase::Aborting);
        self.stopped().await
    }

    async fn stopped(&mut self) -> io::Result<()> {
        (&mut self.task).await.map_err(io::Error::other)
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.shutdown.advance_to(ShutdownPhase::Draining);
    }
}

/// Accepts connections until shutdown, then waits for the requests in flight, ends the sessions, and waits for the
/// connections.
async fn serve(listener: TcpListener, router: Router, read_timeout: Duration, shutdown: Shutdown) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve_connection(stream, router.clone(), read_timeout, shutdown.clone()));
                }
                Err(error) if is_connection_error(&error) => {}
                Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
            },
            Some(_) = connections.join_next() => {}
            () = shutdown.requested() => break,
        }
    }
    drop(listener);
    tokio::select! {
        () = shutdown.drained() => shutdown.advance_to(ShutdownPhase::ClosingStreams),
        () = shutdown.reached(ShutdownPhase::ClosingStreams) => {}
    }
    loop {
        tokio::select! {
            finished = connections.join_next() => if finished.is_none() { return },
            () = shutdown.reached(ShutdownPhase::Aborting) => return connections.shutdown().await,
        }
    }
}

/// Serves one connection.
async fn serve_connection(stream: TcpStream, router: Router, read_timeout: Duration, shutdown: Shutdown) {
    // Streamed chunks are small and must not be delayed.
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(read_timeout)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => {}
        () = shutdown.requested() => {
            connection.as_mut().graceful_shutdown();
            // An aborted connection is no error of the server.
            let _ = connection.await;
        }
    }
}

/// Returns `true` if accepting failed because of the one connection.
fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
