//! The server, the workers and the balancers between them. All of them fail.

use std::env;
use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use super::scenario::{ADDRESS, EFFECTS, PROGRAM, now};
use crate::support::{free_address, http};

/// A server of its own, in a directory that outlives it.
pub(super) struct Server {
    pub(super) directory: PathBuf,
    pub(super) ingress: SocketAddr,
    pub(super) admin: SocketAddr,
    pub(super) node: SocketAddr,
}

impl Server {
    pub(super) fn start(&self) -> Child {
        let log = OpenOptions::new().create(true).append(true).open(self.directory.join("log")).unwrap();
        Command::new(env::var("RESTATE_SERVER").expect("the script `run` sets RESTATE_SERVER"))
            .arg("--no-logo")
            .env("RESTATE_BASE_DIR", &self.directory)
            .env("RESTATE_INGRESS__BIND_ADDRESS", self.ingress.to_string())
            .env("RESTATE_ADMIN__BIND_ADDRESS", self.admin.to_string())
            .env("RESTATE_BIND_PORT", self.node.port().to_string())
            .env("RESTATE_LISTEN_MODE", "tcp")
            .env("RESTATE_DISABLE_TELEMETRY", "true")
            .env("RESTATE_LOG_FILTER", "warn")
            .env_remove("RESTATE_INGRESS")
            .env_remove("RESTATE_ADMIN")
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    pub(super) async fn wait(&self) {
        for url in
            [format!("http://{}/restate/health", self.ingress), format!("http://{}/health", self.admin)]
        {
            while !http().get(&url).send().await.is_ok_and(|response| response.status().is_success()) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// What a balancer does with the connections of a worker.
#[derive(Clone, Copy, PartialEq)]
enum Link {
    Open,
    /// The machine has vanished: nothing arrives any more, and no connection is closed.
    Silent,
    /// The balancer has noticed.
    Closed,
}

/// A worker in a process of its own, behind a balancer.
pub(super) struct Member {
    address: SocketAddr,
    program: &'static str,
    process: Child,
    link: watch::Sender<Link>,
}

/// Something that explains why calls are executed again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Death {
    /// The process, or `None` for the server.
    pub(super) process: Option<u32>,
    pub(super) kind: &'static str,
    /// The time in which it had effects: an instant, except for processes that were frozen.
    pub(super) from: u128,
    pub(super) until: u128,
}

impl Death {
    pub(super) fn at_once(kind: &'static str, process: Option<u32>) -> Self {
        Self { process, kind, from: now(), until: now() }
    }
}

/// The time after which a balancer closes the connections of a worker that does not answer.
const CHECK_TIME: Duration = Duration::from_millis(700);

impl Member {
    pub(super) fn start(program: &'static str, effects: &Path) -> Self {
        let address = free_address();
        let process = spawn(address, program, effects);
        Self { address, program, process, link: watch::Sender::new(Link::Open) }
    }

    pub(super) async fn wait(&self) {
        while TcpStream::connect(self.address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn restart(&mut self, effects: &Path) {
        self.process.kill().await.unwrap();
        self.process = spawn(self.address, self.program, effects);
    }

    fn id(&self) -> u32 {
        self.process.id().unwrap()
    }

    pub(super) async fn kill(&mut self, effects: &Path) -> Death {
        let id = self.id();
        self.restart(effects).await;
        Death::at_once("kill", Some(id))
    }

    /// Its machine vanishes: the process dies, and nothing closes its connections until the balancer notices.
    pub(super) async fn vanish(&mut self, effects: &Path) -> Death {
        let id = self.id();
        self.link.send_replace(Link::Silent);
        self.process.kill().await.unwrap();
        let death = Death::at_once("silent death", Some(id));
        tokio::time::sleep(CHECK_TIME).await;
        self.link.send_replace(Link::Closed);
        self.restart(effects).await;
        self.link.send_replace(Link::Open);
        death
    }

    /// The process stops for a while. If it takes long, the balancer closes its connections meanwhile.
    pub(super) async fn freeze(&mut self, time: Duration) -> Death {
        let from = now();
        self.signal("-STOP").await;
        tokio::time::sleep(time.min(CHECK_TIME)).await;
        if time > CHECK_TIME {
            self.link.send_replace(Link::Closed);
            tokio::time::sleep(time - CHECK_TIME).await;
        }
        self.signal("-CONT").await;
        self.link.send_replace(Link::Open);
        // It reads late what it was sent.
        Death { process: Some(self.id()), kind: "freeze", from, until: now() + 1_000_000 }
    }

    async fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.id().to_string()]).status().await.unwrap();
        assert!(status.success());
    }
}

fn spawn(address: SocketAddr, program: &str, effects: &Path) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "crashing::scenario::worker_process", "--include-ignored"]);
    command.env(ADDRESS, address.to_string()).env(EFFECTS, effects).env(PROGRAM, program).kill_on_drop(true);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Starts a balancer, which forwards connections to the workers in turn, and returns its URI.
pub(super) async fn balance(members: &[Member]) -> String {
    let workers: Vec<_> = members.iter().map(|one| (one.address, one.link.subscribe())).collect();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut next = 0;
        while let Ok((incoming, _)) = listener.accept().await {
            next += 1;
            let mut order = workers.clone();
            order.rotate_left(next % workers.len());
            tokio::spawn(forward(incoming, order));
        }
    });
    uri
}

async fn forward(mut incoming: TcpStream, workers: Vec<(SocketAddr, watch::Receiver<Link>)>) {
    for (worker, mut link) in workers {
        if *link.borrow() != Link::Open {
            continue;
        }
        if let Ok(mut outgoing) = TcpStream::connect(worker).await {
            let _ = (incoming.set_nodelay(true), outgoing.set_nodelay(true));
            let has_ended = tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut incoming, &mut outgoing) => true,
                _ = link.wait_for(|link| *link != Link::Open) => false,
            };
            if !has_ended {
                let _ = link.wait_for(|link| *link != Link::Silent).await;
            }
            return;
        }
    }
}
