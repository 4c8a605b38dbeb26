//! Serves the engine over HTTP/2, and reports to balancers that the worker stops.
//!
//! The SDK's server accepts no connection while it stops. A balancer then gets no answer to its question for the health, takes the worker for one that
//! has vanished, and closes the connections of the calls that the worker is given time to finish: whether they had effects is unknown then. This
//! server answers instead, and refuses what is new; otherwise it is the SDK's.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{Either, Map, Ready, ready};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http2::Builder;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Waits for a connection. An error is that of one connection, or of a process with too many of them.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Serves until the future completes. What is in flight then has this time to finish.
pub(crate) async fn serve<S, B>(
    listener: TcpListener,
    service: S,
    until: impl Future<Output = ()>,
    stop_time: Duration,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let is_stopping = Arc::new(AtomicBool::new(false));
    let connect = |stream: TcpStream, service: Option<S>| {
        let service = Stoppable { service, is_stopping: Arc::clone(&is_stopping) };
        Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service)
    };
    let connections = GracefulShutdown::new();
    let mut until = std::pin::pin!(until);
    loop {
        tokio::select! {
            stream = accept(&listener) => {
                let connection = connections.watch(connect(stream, Some(service.clone())));
                tokio::spawn(async { _ = connection.await });
            }
            () = &mut until => break,
        }
    }
    is_stopping.store(true, Ordering::SeqCst);
    let mut stopped = std::pin::pin!(tokio::time::timeout(stop_time, connections.shutdown()));
    // Closed at the end, because nothing in them needs to be finished.
    let mut refused = JoinSet::new();
    loop {
        tokio::select! {
            stream = accept(&listener) => drop(refused.spawn(connect(stream, None))),
            Some(_) = refused.join_next() => {}
            _ = &mut stopped => return,
        }
    }
}

/// A service that reports when it stops.
struct Stoppable<S> {
    /// Nothing for a connection that was opened too late.
    service: Option<S>,
    is_stopping: Arc<AtomicBool>,
}

type StoppableBody<B> = http_body_util::Either<Full<Bytes>, B>;
type StoppableResult<B> = Result<Response<StoppableBody<B>>, Infallible>;

impl<S, B> Service<Request<Incoming>> for Stoppable<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
{
    type Response = Response<StoppableBody<B>>;
    type Error = Infallible;
    type Future = Either<
        Ready<StoppableResult<B>>,
        Map<S::Future, fn(Result<Response<B>, Infallible>) -> StoppableResult<B>>,
    >;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        // The last part of the path, as the SDK reads it.
        let is_health = request.uri().path().rsplit('/').next() == Some("health");
        let refusal = match &self.service {
            _ if is_health && self.is_stopping.load(Ordering::SeqCst) => StatusCode::NOT_FOUND,
            Some(service) => return service.call(request).map(served as fn(_) -> _).right_future(),
            None => StatusCode::SERVICE_UNAVAILABLE,
        };
        let mut response = Response::new(http_body_util::Either::Left(Full::default()));
        *response.status_mut() = refusal;
        ready(Ok(response)).left_future()
    }
}

fn served<B>(result: Result<Response<B>, Infallible>) -> StoppableResult<B> {
    result.map(|response| response.map(http_body_util::Either::Right))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::path::Path;
    use std::process::Stdio;

    use hyper::service::service_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;
    use tokio::process::Command;
    use tokio::sync::{Notify, oneshot};
    use tokio::task::JoinHandle;

    use super::*;

    /// A worker with a call in flight, which finishes on request.
    struct Worker {
        address: SocketAddr,
        stop: oneshot::Sender<()>,
        finish: Arc<Notify>,
        call: JoinHandle<u16>,
        serving: JoinHandle<()>,
    }

    impl Worker {
        /// Its health is reported by this status; 401 is that of a worker with an identity key.
        async fn start(healthy: u16) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (started, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
            let (begun, finished) = (Arc::clone(&started), Arc::clone(&finish));
            let service = service_fn(move |request: Request<Incoming>| {
                let (begun, finished) = (Arc::clone(&begun), Arc::clone(&finished));
                async move {
                    let mut response = Response::new(Full::<Bytes>::default());
                    if request.uri().path() == "/health" {
                        *response.status_mut() = StatusCode::from_u16(healthy).unwrap();
                    } else {
                        begun.notify_one();
                        finished.notified().await;
                    }
                    Ok::<_, Infallible>(response)
                }
            });
            let (stop, stopped) = oneshot::channel::<()>();
            let until = async { _ = stopped.await };
            let serving = tokio::spawn(serve(listener, service, until, Duration::from_secs(600)));
            let call = tokio::spawn(status(address, "/invoke"));
            started.notified().await;
            Self { address, stop, finish, call, serving }
        }
    }

    /// Returns the status of the answer on a connection of its own.
    async fn status(address: SocketAddr, path: &'static str) -> u16 {
        let stream = TcpStream::connect(address).await.unwrap();
        let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get(format!("http://{address}{path}")).body(()).unwrap();
        client.send_request(request, true).unwrap().0.await.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn a_worker_that_stops_reports_it_while_its_calls_finish() {
        for healthy in [200, 401] {
            let Worker { address, stop, finish, call, serving } = Worker::start(healthy).await;
            assert_eq!(status(address, "/health").await, healthy);
            stop.send(()).unwrap();
            while status(address, "/health").await == healthy {
                tokio::task::yield_now().await;
            }
            assert_eq!(status(address, "/health").await, 404);
            assert_eq!(status(address, "/invoke").await, 503, "it takes no new calls");
            assert!(!call.is_finished() && !serving.is_finished());
            finish.notify_one();
            assert_eq!(call.await.unwrap(), 200);
            serving.await.unwrap();
        }
    }

    /// Returns what haproxy reports of the first worker.
    async fn state(socket: &Path) -> String {
        let mut stream = UnixStream::connect(socket).await.unwrap();
        stream.write_all(b"show stat\n").await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let line = text.lines().find(|line| line.starts_with("workers,worker-1,")).unwrap();
        line.split(',').nth(17).unwrap().to_owned()
    }

    #[tokio::test]
    #[ignore = "needs haproxy"]
    async fn a_balancer_takes_a_worker_that_stops_for_neither_healthy_nor_dead() {
        let guide = include_str!("../docs/guide.md");
        let (_, rest) = guide.split_once("    content: |\n").unwrap();
        let (configuration, _) = rest.split_once("```").unwrap();
        for healthy in [200, 401] {
            let Worker { address, stop, finish, call, serving } = Worker::start(healthy).await;
            let folder = std::env::temp_dir().join(format!("stopping_{}_{healthy}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            let socket = folder.join("socket");
            let check = "option httpchk GET /health\n";
            let checks = match healthy {
                401 => format!("{check}        http-check expect status 401\n"),
                _ => check.to_owned(),
            };
            let front = format!("{} proto h2", folder.join("front").display());
            let text = configuration.replace(check, &checks).replace(":9080 proto h2", &front);
            let text = text.replace("worker-1:9080", &address.to_string());
            let text = text.replace("worker-2:9080", "127.0.0.1:9 disabled");
            let file = folder.join("haproxy.cfg");
            std::fs::write(&file, format!("global\n  stats socket {}\n{text}", socket.display())).unwrap();
            let mut haproxy = Command::new("haproxy");
            haproxy.arg("-f").arg(&file).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
            let mut haproxy = haproxy.spawn().unwrap();
            while UnixStream::connect(&socket).await.is_err() {
                assert_eq!(haproxy.try_wait().unwrap(), None, "haproxy takes the configuration");
                tokio::task::yield_now().await;
            }
            while state(&socket).await != "UP" {
                tokio::task::yield_now().await;
            }
            stop.send(()).unwrap();
            let mut seen = state(&socket).await;
            while seen.starts_with("UP") {
                tokio::time::sleep(Duration::from_millis(20)).await;
                seen = state(&socket).await;
            }
            assert_eq!(seen, "NOLB", "{healthy}");
            finish.notify_one();
            assert_eq!(call.await.unwrap(), 200);
            serving.await.unwrap();
            std::fs::remove_dir_all(&folder).unwrap();
        }
    }
}
