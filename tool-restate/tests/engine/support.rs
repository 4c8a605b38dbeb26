//! The server of the tests, and workers of their own.

use std::collections::BTreeSet;
use std::env;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tool_core::run::{Answer, Wait};
use tool_restate::{Client, RemoteAgent, RemoteOutcome, RemoteRun, RunFailure, Worker, register};

pub(crate) fn admin() -> String {
    env::var("RESTATE_ADMIN").expect("the script `run` sets RESTATE_ADMIN")
}

pub(crate) fn client() -> Client {
    Client::connect(&env::var("RESTATE_INGRESS").expect("the script `run` sets RESTATE_INGRESS")).unwrap()
}

/// Returns a name that no other test uses, also of an earlier execution on the same server.
pub(crate) fn unique(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst))
}

/// Returns an address at which nothing listens. Its port is below the ports of outgoing connections, so that none of them takes it
/// before it is bound.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id().wrapping_mul(128).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + (number % 20_000) as u16;
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return listener.local_addr().unwrap();
        }
    }
}

/// A worker in this process, which stops when it is dropped.
pub(crate) struct Serving {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves without being registered.
pub(crate) async fn serve_at(worker: Worker, address: SocketAddr) -> Serving {
    let task = tokio::spawn(async move { worker.serve(address, std::future::pending()).await.unwrap() });
    while tokio::net::TcpStream::connect(address).await.is_err() {
        tokio::task::yield_now().await;
    }
    Serving { address, task }
}

pub(crate) async fn serve(worker: Worker) -> Serving {
    let serving = serve_at(worker, free_address()).await;
    register_at(serving.address).await;
    serving
}

/// A worker with a runtime of its own, which dies with all its connections, as its process would.
pub(crate) struct Mortal(Option<(Serving, Runtime)>);

impl Mortal {
    /// Serves without being registered, as soon as the address is free.
    pub(crate) async fn start(worker: Worker, address: SocketAddr) -> Self {
        while TcpListener::bind(address).is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let serving = runtime.spawn(serve_at(worker, address)).await.unwrap();
        Self(Some((serving, runtime)))
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        let (serving, runtime) = self.0.take().unwrap();
        drop(serving);
        runtime.shutdown_background();
    }
}

/// Waits until the condition holds.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(what, waiting).await;
}

/// The time after which a test hangs. Long, because the engine continues some invocations only after a minute, and machines can be busy.
const HANG: Duration = Duration::from_secs(300);

/// Fails if the future hangs.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG, future).await.unwrap_or_else(|_| panic!("{what}: not within {HANG:?}"))
}

/// Registers a worker, and waits until the ingress knows its services, which takes it a moment.
pub(crate) async fn register_at(address: SocketAddr) {
    // One at a time: on a busy machine, the server gives up registrations that meet.
    static REGISTERING: Mutex<()> = Mutex::const_new(());
    let registering = REGISTERING.lock().await;
    register(&admin(), &format!("http://{address}")).await.unwrap();
    drop(registering);
    let ingress = env::var("RESTATE_INGRESS").unwrap();
    let names = async |url: String, name: fn(&serde_json::Value) -> Option<&str>| -> BTreeSet<String> {
        let body = http().get(url).send().await.unwrap().text().await.unwrap();
        let value: serde_json::Value = serde_json::from_str(&body).unwrap();
        value["services"].as_array().unwrap().iter().filter_map(name).map(str::to_owned).collect()
    };
    let registered =
        names(format!("{}/services", admin()), |one| one["name"].as_str().filter(|_| one["public"] == true));
    let registered = registered.await;
    while !names(format!("{ingress}/restate/health"), serde_json::Value::as_str)
        .await
        .is_superset(&registered)
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn agent(name: &str) -> RemoteAgent {
    client().agent(name)
}

pub(crate) async fn answer(run: &RemoteRun) -> Answer {
    match run.wait().await.unwrap() {
        RemoteOutcome::Answer(answer) => answer,
        RemoteOutcome::Failed(failure) => panic!("{failure}"),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn failure(run: &RemoteRun) -> RunFailure {
    match run.wait().await.unwrap() {
        RemoteOutcome::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn waiting_calls(run: &RemoteRun) -> Vec<Wait> {
    match run.wait().await.unwrap() {
        RemoteOutcome::Waiting(waits) => waits,
        other => panic!("{other:?}"),
    }
}

/// Returns the paths of calls that wait.
pub(crate) fn paths(waits: &[Wait]) -> Vec<&str> {
    waits.iter().map(|wait| &*wait.path).collect()
}

pub(crate) fn http() -> reqwest::Client {
    let url = "http://localhost".parse().unwrap();
    tool_http::client::new_client(&url).unwrap().build().unwrap()
}

/// Returns the first row of a query of the server's tables.
pub(crate) async fn sql(query: &str) -> serde_json::Value {
    let body = serde_json::json!({ "query": query }).to_string();
    let request = http().post(format!("{}/query", admin())).header("content-type", "application/json");
    let response = request.header("accept", "application/json").body(body).send().await.unwrap();
    let text = response.text().await.unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    value["rows"][0].clone()
}

/// Returns the id of the invocation of a run.
pub(crate) async fn invocation_of(agent: &str, key: &str) -> String {
    let query = format!(
        "SELECT id FROM sys_invocation WHERE target_service_name = '{agent}' AND target_service_key = '{key}' \
         AND target_handler_name = 'run'"
    );
    sql(&query).await["id"].as_str().unwrap().to_owned()
}

/// Returns the number of invocations for a run that have not ended.
pub(crate) async fn open_invocations(agent: &str, key: &str) -> u64 {
    let query = format!(
        "SELECT count(*) AS open FROM sys_invocation WHERE target_service_name = '{agent}' AND target_service_key = '{key}' \
         AND status <> 'completed'"
    );
    sql(&query).await["open"].as_u64().unwrap()
}

/// Cancels or kills a run with the tools of the engine, which need no worker.
pub(crate) async fn end_by_engine(how: &str, agent: &str, key: &str) {
    let url = format!("{}/invocations/{}/{how}", admin(), invocation_of(agent, key).await);
    let response = http().patch(url).send().await.unwrap();
    assert!(response.status().is_success(), "{response:?}");
}
