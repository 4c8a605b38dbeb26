//! A running server: the accept loop and graceful shutdown.

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;
use std::{fmt, io};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::connection;

/// The pause after a failed `accept`, which usually means that there are too many open connections.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_secs(1);

/// A running server, returned by [`Server::spawn`](super::Server::spawn).
///
/// Dropping it closes the port; requests in flight are still answered.
#[must_use = "dropping it closes the port"]
pub struct RunningServer {
    address: SocketAddr,
    shutdown: watch::Sender<Shutdown>,
    task: JoinHandle<()>,
}

/// The phases of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shutdown {
    NotRequested,
    /// Accepts no more requests.
    Graceful,
    /// Aborts the requests in flight as well.
    Immediate,
}

impl RunningServer {
    pub(super) fn start(listener: TcpListener, router: Router, read_timeout: Duration) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (shutdown, signal) = watch::channel(Shutdown::NotRequested);
        let task = tokio::spawn(serve(listener, router, read_timeout, signal));
        Ok(Self { address, shutdown, task })
    }

    /// Returns the address that the server listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the base URL for clients, such as `http://127.0.0.1:8080/v1`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Stops accepting requests and waits until the requests in flight are answered, including streams.
    ///
    /// # Errors
    ///
    /// Returns an error if the server has failed.
    pub async fn stop(mut self) -> io::Result<()> {
        self.shutdown.send_replace(Shutdown::Graceful);
        self.stopped().await
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
    pub async fn stop_within(mut self, timeout: Duration) -> io::Result<()> {
        self.shutdown.send_replace(Shutdown::Graceful);
        if let Ok(stopped) = tokio::time::timeout(timeout, self.stopped()).await {
            return stopped;
        }
        self.shutdown.send_replace(Shutdown::Immediate);
        self.stopped().await
    }

    async fn stopped(&mut self) -> io::Result<()> {
        (&mut self.task).await.map_err(io::Error::other)
    }
}

impl fmt::Debug for RunningServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.shutdown.send_replace(Shutdown::Graceful);
    }
}

/// Accepts connections until shutdown, then waits for the open ones.
async fn serve(
    listener: TcpListener,
    router: Router,
    read_timeout: Duration,
    mut shutdown: watch::Receiver<Shutdown>,
) {
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
            _ = requested(&mut shutdown, |shutdown| shutdown != Shutdown::NotRequested) => break,
        }
    }
    drop(listener);
    loop {
        tokio::select! {
            finished = connections.join_next() => if finished.is_none() { return },
            // `false` after the `RunningServer` was dropped: then the connections finish on their own.
            true = requested(&mut shutdown, |shutdown| shutdown == Shutdown::Immediate) => {
                return connections.shutdown().await;
            }
        }
    }
}

/// Serves one connection. When the caller disconnects, the request in flight is dropped.
async fn serve_connection(
    stream: TcpStream,
    router: Router,
    read_timeout: Duration,
    mut shutdown: watch::Receiver<Shutdown>,
) {
    // Streamed chunks are small and must not be delayed.
    let _ = stream.set_nodelay(true);
    let (connection, watcher) = connection::split(stream, read_timeout);
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(read_timeout)
        .serve_connection(TokioIo::new(connection), TowerToHyperService::new(router));
    let mut served = pin!(served);
    let until_closed = async {
        tokio::select! {
            _ = served.as_mut() => {}
            _ = requested(&mut shutdown, |shutdown| shutdown != Shutdown::NotRequested) => {
                served.as_mut().graceful_shutdown();
                // An aborted connection is no error of the server.
                let _ = served.await;
            }
        }
    };
    tokio::select! {
        () = until_closed => {}
        () = watcher.disconnected() => {}
    }
}

/// Waits until a shutdown that `is_reached` accepts is requested. Returns `false` if the [`RunningServer`] was dropped before.
async fn requested(shutdown: &mut watch::Receiver<Shutdown>, is_reached: fn(Shutdown) -> bool) -> bool {
    shutdown.wait_for(|shutdown| is_reached(*shutdown)).await.is_ok()
}

/// Returns `true` if accepting failed because of the one connection.
fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
