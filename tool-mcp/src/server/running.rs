//! A server over HTTP at work.

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

use super::stopping::{Stop, Stopping};

/// How long the next connection is waited for when none could be taken, as there are too many.
const PAUSE: Duration = Duration::from_secs(1);

/// A server at work, made by [`Server::spawn`](super::Server::spawn). Dropping it closes the port; a call under way is still
/// answered.
#[derive(Debug)]
#[must_use = "the port is closed when it is dropped"]
pub struct RunningServer {
    address: SocketAddr,
    stopping: Stopping,
    task: JoinHandle<()>,
}

impl RunningServer {
    pub(super) fn start(
        listener: TcpListener,
        router: Router,
        read_timeout: Duration,
        stopping: Stopping,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let task = tokio::spawn(serve(listener, router, read_timeout, stopping.clone()));
        Ok(Self { address, stopping, task })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a host takes as the server's URL, such as `http://127.0.0.1:8080/mcp`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Takes no more requests, waits for the calls under way, and ends the sessions.
    ///
    /// # Errors
    ///
    /// The server had failed.
    pub async fn stop(mut self) -> io::Result<()> {
        self.stopping.stop(Stop::Requests);
        self.ended().await
    }

    /// As [`stop`](Self::stop), but calls that are still under way after this time are cancelled.
    ///
    /// # Errors
    ///
    /// The server had failed.
    pub async fn stop_within(mut self, time: Duration) -> io::Result<()> {
        self.stopping.stop(Stop::Requests);
        if let Ok(ended) = tokio::time::timeout(time, self.ended()).await {
            return ended;
        }
        self.stopping.stop(Stop::AtOnce);
        self.ended().await
    }

    async fn ended(&mut self) -> io::Result<()> {
        (&mut self.task).await.map_err(io::Error::other)
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.stopping.stop(Stop::Requests);
    }
}

/// Takes connections until it is told to stop, then waits for the requests under way, ends the sessions, and waits for the
/// connections.
async fn serve(listener: TcpListener, router: Router, read_timeout: Duration, stopping: Stopping) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(answer(stream, router.clone(), read_timeout, stopping.clone()));
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
            () = stopping.begun() => break,
        }
    }
    drop(listener);
    tokio::select! {
        () = stopping.answered() => stopping.stop(Stop::Streams),
        () = stopping.reached(Stop::Streams) => {}
    }
    loop {
        tokio::select! {
            ended = connections.join_next() => if ended.is_none() { return },
            () = stopping.reached(Stop::AtOnce) => return connections.shutdown().await,
        }
    }
}

/// Answers the requests of one connection.
async fn answer(stream: TcpStream, router: Router, read_timeout: Duration, stopping: Stopping) {
    // Pieces of a stream are small, and are to come as they are sent.
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(read_timeout)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => {}
        () = stopping.begun() => {
            connection.as_mut().graceful_shutdown();
            // A client who breaks off is no concern of the server's.
            let _ = connection.await;
        }
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
