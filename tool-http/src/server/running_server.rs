//! A running server: the accept loop and graceful shutdown.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use super::connection;
use super::limits::Limits;
use super::shutdown::{Shutdown, ShutdownPhase};
use crate::backoff::LONGEST_TIMEOUT;

/// The pause after a failed `accept`, which usually means that there are too many open connections.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_secs(1);

/// A server in a background task, returned by `Server::spawn` of the crates that serve. Dropping it closes the port; requests in
/// flight are still answered.
#[derive(Debug)]
#[must_use = "dropping it closes the port"]
pub struct RunningServer {
    address: SocketAddr,
    /// The path of the URL for clients.
    path: &'static str,
    shutdown: Shutdown,
    task: JoinHandle<()>,
}

impl RunningServer {
    /// Serves in a background task of the Tokio runtime. The URL for clients has this path.
    ///
    /// # Errors
    ///
    /// Returns an error if the listener has no address.
    pub fn start(
        listener: TcpListener,
        router: Router,
        path: &'static str,
        limits: &Limits,
        shutdown: Shutdown,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let task = tokio::spawn(serve(listener, router, *limits, shutdown.clone()));
        Ok(Self { address, path, shutdown, task })
    }

    /// Returns the address that the server listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL for clients, such as `http://127.0.0.1:8080/v1`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}{}", self.address, self.path)
    }

    /// Stops accepting requests, waits until those in flight are answered, and ends endless streams.
    ///
    /// # Errors
    ///
    /// Returns an error if the server has failed.
    pub async fn stop(mut self) -> io::Result<()> {
        self.shutdown.advance_to(ShutdownPhase::Draining);
        self.stopped().await
    }

    /// Stops like [`stop`](Self::stop), but aborts the requests that are still in flight after the timeout.
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

/// Accepts connections until shutdown, then waits for the requests in flight, ends endless streams, and waits for the
/// connections.
async fn serve(listener: TcpListener, router: Router, limits: Limits, shutdown: Shutdown) {
    let connections = GracefulShutdown::new();
    let permits = Arc::new(Semaphore::new(limits.max_connections.clamp(1, Semaphore::MAX_PERMITS)));
    loop {
        tokio::select! {
            (stream, permit) = accept(&listener, &permits) => {
                let (router, watcher) = (router.clone(), connections.watcher());
                let aborted = shutdown.reached_weak(ShutdownPhase::Aborting);
                tokio::spawn(async move {
                    let _permit = permit;
                    tokio::select! {
                        () = serve_connection(stream, router, limits.read_timeout, watcher) => {}
                        true = aborted => {}
                    }
                });
            }
            () = shutdown.requested() => break,
        }
    }
    drop(listener);
    let close_streams = async {
        tokio::select! {
            () = shutdown.drained() => shutdown.advance_to(ShutdownPhase::ClosingStreams),
            () = shutdown.reached(ShutdownPhase::ClosingStreams) => {}
        }
    };
    tokio::join!(connections.shutdown(), close_streams);
    // What was aborted outlasts its connection if it has to put something in order.
    shutdown.settled().await;
}

/// Accepts a connection once there is a permit for it. Until then, connections wait in the system's queue.
async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> (TcpStream, Option<OwnedSemaphorePermit>) {
    // The semaphore is never closed.
    let permit = Arc::clone(permits).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, permit),
            Err(error) if is_connection_error(&error) => {}
            Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
        }
    }
}

/// Serves one connection. When the caller disconnects, the request in flight is dropped.
async fn serve_connection(stream: TcpStream, router: Router, read_timeout: Duration, watcher: Watcher) {
    // Streamed chunks are small and must not be delayed.
    let _ = stream.set_nodelay(true);
    let (connection, disconnect) = connection::split(stream, read_timeout);
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(read_timeout.min(LONGEST_TIMEOUT))
        .serve_connection(TokioIo::new(connection), TowerToHyperService::new(router));
    tokio::select! {
        // An aborted connection is no error of the server.
        _ = watcher.watch(served) => {}
        () = disconnect.disconnected() => {}
    }
}

/// Returns `true` if accepting failed because of the one connection.
fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
