//! A server at work.

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

/// How long the next connection is waited for when none could be taken, as there are too many.
const PAUSE: Duration = Duration::from_secs(1);

/// A server at work, made by [`Server::spawn`](super::Server::spawn). Dropping it closes the port; a request under
/// way is still answered.
#[must_use = "the port is closed when it is dropped"]
pub struct RunningServer {
    address: SocketAddr,
    stop: watch::Sender<Stop>,
    task: JoinHandle<()>,
}

/// How far the server is to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stop {
    NotYet,
    /// No more requests are taken.
    Gracefully,
    /// Those under way are cut, too.
    AtOnce,
}

impl RunningServer {
    pub(super) fn start(listener: TcpListener, router: Router, read_timeout: Duration) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (stop, stopping) = watch::channel(Stop::NotYet);
        let task = tokio::spawn(serve(listener, router, read_timeout, stopping));
        Ok(Self { address, stop, task })
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

    /// Takes no more requests, and waits for those under way, streamed ones to their end.
    ///
    /// # Errors
    ///
    /// The server had failed.
    pub async fn stop(mut self) -> io::Result<()> {
        self.stop.send_replace(Stop::Gracefully);
        self.ended().await
    }

    /// As [`stop`](Self::stop), but what is still under way after this time is cut.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tool_core::testing::ScriptedModel;
    /// use tool_openai::server::Server;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// let server = Server::new().model("greeter", ScriptedModel::new().says("Hello!")).spawn("127.0.0.1:0").await?;
    /// server.stop_within(Duration::from_secs(10)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The server had failed.
    pub async fn stop_within(mut self, time: Duration) -> io::Result<()> {
        self.stop.send_replace(Stop::Gracefully);
        if let Ok(ended) = tokio::time::timeout(time, self.ended()).await {
            return ended;
        }
        self.stop.send_replace(Stop::AtOnce);
        self.ended().await
    }

    async fn ended(&mut self) -> io::Result<()> {
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
        self.stop.send_replace(Stop::Gracefully);
    }
}

/// Takes connections until it is told to stop, then waits for them.
async fn serve(
    listener: TcpListener,
    router: Router,
    read_timeout: Duration,
    mut stopping: watch::Receiver<Stop>,
) {
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
            _ = is_told(&mut stopping, |stop| stop != Stop::NotYet) => break,
        }
    }
    drop(listener);
    loop {
        tokio::select! {
            ended = connections.join_next() => if ended.is_none() { return },
            // Whoever dropped the server does not wait for it.
            true = is_told(&mut stopping, |stop| stop == Stop::AtOnce) => return connections.shutdown().await,
        }
    }
}

/// Answers the requests of one connection. Its future is dropped when the caller goes away, with all that is under way
/// for it.
async fn answer(
    stream: TcpStream,
    router: Router,
    read_timeout: Duration,
    mut stopping: watch::Receiver<Stop>,
) {
    // Pieces of a stream are small, and are to come as they are sent.
    let _ = stream.set_nodelay(true);
    let (connection, presence) = connection::of(stream, read_timeout);
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(read_timeout)
        .serve_connection(TokioIo::new(connection), TowerToHyperService::new(router));
    let mut served = pin!(served);
    let to_its_end = async {
        tokio::select! {
            _ = served.as_mut() => {}
            _ = is_told(&mut stopping, |stop| stop != Stop::NotYet) => {
                served.as_mut().graceful_shutdown();
                // A caller who breaks off is no concern of the server's.
                let _ = served.await;
            }
        }
    };
    tokio::select! {
        () = to_its_end => {}
        () = presence.ended() => {}
    }
}

/// Waits until the server is told to stop so far; `false` if nobody is there any more to tell it.
async fn is_told(stopping: &mut watch::Receiver<Stop>, is_enough: fn(Stop) -> bool) -> bool {
    stopping.wait_for(|stop| is_enough(*stop)).await.is_ok()
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
