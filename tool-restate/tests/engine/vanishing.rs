//! Workers that vanish without closing their connections, and workers that are restarted, behind haproxy with the configuration of the guide.

use std::env;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tool_core::model::{AssistantMessage, ChatModel, ChatRequest, ChatResponse};
use tool_core::provider::ModelFuture;
use tool_core::{Agent, Message, ToolCall, tool, tools};
use tool_restate::Worker;

use crate::support::{agent, answer, free_address, register_at, unique, within};

const NAME: &str = "VANISHING_NAME";
const ADDRESS: &str = "VANISHING_ADDRESS";
/// The file with the process that pays.
const PAYING: &str = "VANISHING_PAYING";

/// Calls a tool in each of forty turns.
struct Counter;

impl ChatModel for Counter {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let turn = request.messages().iter().filter(|one| matches!(one, Message::Tool(_))).count();
        let reply = match turn {
            40 => AssistantMessage::text("Counted."),
            _ => AssistantMessage::default().with_tool_calls([ToolCall::new(
                format!("c{turn}"),
                "count",
                format!(r#"{{"turn": {turn}}}"#),
            )]),
        };
        Box::pin(std::future::ready(Ok(ChatResponse::new(reply))))
    }
}

#[tool("Counts")]
async fn count(turn: usize) -> usize {
    tokio::time::sleep(Duration::from_millis(50)).await;
    turn
}

/// Calls a tool that works for longer than haproxy needs to take its worker for dead, and less long than a worker that stops gives it.
struct Payer;

impl ChatModel for Payer {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let reply = match request.messages().last() {
            Some(Message::Tool(result)) => AssistantMessage::text(result.content.text()),
            _ => AssistantMessage::default().with_tool_calls([ToolCall::new("c", "pay", "{}")]),
        };
        Box::pin(std::future::ready(Ok(ChatResponse::new(reply))))
    }
}

/// Returns the worker that has paid, which has written its process beforehand.
#[tool("Pays", at_most_once)]
async fn pay() -> u32 {
    std::fs::write(env::var(PAYING).unwrap(), std::process::id().to_string()).unwrap();
    tokio::time::sleep(Duration::from_secs(8)).await;
    std::process::id()
}

/// The process of a worker; a test only by its form.
#[tokio::test]
#[ignore = "a process of `runs_go_on_without_a_worker_that_vanishes`"]
async fn worker_process() {
    let (Ok(name), Ok(address)) = (env::var(NAME), env::var(ADDRESS)) else { return };
    let counter = Agent::builder(Counter)
        .name(&*name)
        .tools(tools![count])
        .limits(|l| l.max_turns(100))
        .build()
        .unwrap();
    let payer = Agent::builder(Payer).name(format!("{name}_payer")).tools(tools![pay]).build().unwrap();
    let mut stop = signal(SignalKind::terminate()).unwrap();
    let until = async { _ = stop.recv().await };
    Worker::new().agent(counter).agent(payer).serve(address, until).await.unwrap();
}

fn paying(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.paying"))
}

fn start_worker(name: &str) -> (SocketAddr, Child) {
    let address = free_address();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "vanishing::worker_process", "--include-ignored"]);
    command.env(NAME, name).env(ADDRESS, address.to_string()).env(PAYING, paying(name)).kill_on_drop(true);
    (address, command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

/// Forwards connections until the line is cut: afterwards nothing arrives, and nothing is closed.
async fn line(listener: TcpListener, worker: SocketAddr, cut: watch::Receiver<bool>) {
    while let Ok((mut incoming, _)) = listener.accept().await {
        let mut cut = cut.clone();
        tokio::spawn(async move {
            let is_cut = async move { drop(cut.wait_for(|is_cut| *is_cut).await) };
            let forward = async {
                let mut outgoing = TcpStream::connect(worker).await.unwrap();
                let _ = (incoming.set_nodelay(true), outgoing.set_nodelay(true));
                let _ = tokio::io::copy_bidirectional(&mut incoming, &mut outgoing).await;
            };
            let mut forward = std::pin::pin!(forward);
            tokio::select! {
                () = &mut forward => return,
                () = is_cut => {}
            }
            std::future::pending::<()>().await;
        });
    }
}

/// Returns the configuration in the guide, for these addresses.
fn configuration(balancer: SocketAddr, workers: [SocketAddr; 2]) -> String {
    let guide = include_str!("../../docs/guide.md");
    let (_, rest) = guide.split_once("    content: |\n").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    let text = text.replace(":9080 proto h2", &format!("{balancer} proto h2"));
    text.replace("worker-1:9080", &workers[0].to_string()).replace("worker-2:9080", &workers[1].to_string())
}

async fn listens(address: SocketAddr) {
    while TcpStream::connect(address).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Starts haproxy in front of these workers, and registers it with the server.
async fn balance(name: &str, workers: [SocketAddr; 2]) -> Child {
    let balancer = free_address();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.cfg"));
    std::fs::write(&file, configuration(balancer, workers)).unwrap();
    let mut haproxy = Command::new("haproxy");
    haproxy.arg("-f").arg(&file).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let haproxy = haproxy.spawn().unwrap();
    listens(balancer).await;
    std::fs::remove_file(&file).unwrap();
    register_at(balancer).await;
    haproxy
}

#[derive(Clone, Copy, Debug)]
enum Death {
    Cut,
    Freeze,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a Restate server and haproxy"]
async fn runs_go_on_without_a_worker_that_vanishes() {
    for death in [Death::Cut, Death::Freeze] {
        let name = unique("counter");
        let (first, mut first_process) = start_worker(&name);
        let (second, _second_process) = start_worker(&name);
        for address in [first, second] {
            listens(address).await;
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let entrance = listener.local_addr().unwrap();
        let (cut, is_cut) = watch::channel(false);
        tokio::spawn(line(listener, first, is_cut));
        let _haproxy = balance(&name, [entrance, second]).await;
        let counter = Arc::new(agent(&name));
        let mut runs = Vec::new();
        for _ in 0..8 {
            runs.push(counter.ask("Count").send().await.unwrap());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        match death {
            Death::Cut => cut.send(true).unwrap(),
            Death::Freeze => {
                let id = first_process.id().unwrap().to_string();
                assert!(Command::new("kill").args(["-STOP", &id]).status().await.unwrap().success());
            }
        }
        for run in &runs {
            let what = format!("{death:?}, {}", run.key());
            assert_eq!(within(&what, answer(run)).await.text(), "Counted.");
        }
        first_process.kill().await.unwrap();
    }
}

/// Without the 404 of a worker that stops, or without `disable-on-404`, haproxy closes the connection of the call, and its outcome is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a Restate server and haproxy"]
async fn a_call_finishes_on_a_worker_that_is_restarted() {
    let name = unique("restarted");
    let (first, mut first_process) = start_worker(&name);
    let (second, mut second_process) = start_worker(&name);
    for address in [first, second] {
        listens(address).await;
    }
    let _haproxy = balance(&name, [first, second]).await;
    let run = agent(&format!("{name}_payer")).ask("Pay").send().await.unwrap();
    let paying = within("a worker pays", async {
        loop {
            match std::fs::read_to_string(paying(&name)) {
                Ok(id) if !id.is_empty() => break id,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    })
    .await;
    assert!(Command::new("kill").args(["-TERM", &paying]).status().await.unwrap().success());
    assert_eq!(within("the call finishes", answer(&run)).await.text(), paying);
    let is_first = first_process.id().is_some_and(|id| id.to_string() == paying);
    let stopped = if is_first { &mut first_process } else { &mut second_process };
    assert!(within("the worker ends", stopped.wait()).await.unwrap().success());
    std::fs::remove_file(self::paying(&name)).unwrap();
}
