//! Workers that vanish without closing their connections, behind haproxy with the configuration of the guide.

use std::env;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tool_core::model::{AssistantMessage, ChatModel, ChatRequest, ChatResponse, ModelFuture};
use tool_core::{Agent, Message, ToolCall, tool, tools};
use tool_restate::Worker;

use crate::support::{agent, answer, free_address, register_at, unique, within};

const NAME: &str = "VANISHING_NAME";
const ADDRESS: &str = "VANISHING_ADDRESS";

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
    Worker::new().agent(counter).serve(address, std::future::pending()).await.unwrap();
}

fn start_worker(name: &str) -> (SocketAddr, Child) {
    let address = free_address();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "vanishing::worker_process", "--include-ignored"]);
    command.env(NAME, name).env(ADDRESS, address.to_string()).kill_on_drop(true);
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
            while TcpStream::connect(address).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let entrance = listener.local_addr().unwrap();
        let (cut, is_cut) = watch::channel(false);
        tokio::spawn(line(listener, first, is_cut));
        let balancer = free_address();
        let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.cfg"));
        std::fs::write(&file, configuration(balancer, [entrance, second])).unwrap();
        let mut haproxy = Command::new("haproxy");
        haproxy.arg("-f").arg(&file).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let _haproxy = haproxy.spawn().unwrap();
        while TcpStream::connect(balancer).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        register_at(balancer).await;
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
        std::fs::remove_file(&file).unwrap();
    }
}
