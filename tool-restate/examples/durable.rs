//! A durable run whose worker dies in the middle, and a payment that is approved from another terminal.
//!
//! `cargo run --example durable` starts a Restate server, a worker with the agent and a worker with its tools. The server is the
//! binary that RESTATE_SERVER names, `restate-server` of the PATH, or the one of `npx`.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{env, fs};

use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};
use tool_core::model::{AssistantMessage, ChatModel, ChatRequest, ChatResponse};
use tool_core::provider::ModelFuture;
use tool_core::run::{Decision, Wait, WaitReason};
use tool_core::tool::IdempotencyKey;
use tool_core::{Agent, Message, ToolCall, tool, tools};
use tool_restate::{Client, ErrorKind, RemoteOutcome, Worker, register};

#[tool("Finds an order, which takes a while")]
async fn find_order(id: u32) -> String {
    println!("  [worker {}] searching order {id} …", std::process::id());
    tokio::time::sleep(Duration::from_secs(2)).await;
    println!("  [worker {}] found order {id}", std::process::id());
    format!("order {id}: 2 books, 30 euros")
}

#[tool("Pays an order back", needs_approval)]
fn pay_back(id: u32, euros: u32, #[inject] key: &IdempotencyKey) -> String {
    println!("  [worker {}] paying back order {id} under the key {key}", std::process::id());
    format!("paid {euros} euros")
}

/// A model without a network: it finds the order, pays it back, and answers.
struct Clerk;

impl ChatModel for Clerk {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let results = request.messages().iter().filter(|message| matches!(message, Message::Tool(_)));
        let results: Vec<_> = results.map(|message| message.text().into_owned()).collect();
        let call = |name: &str, arguments: &str| {
            AssistantMessage::default().with_tool_calls([ToolCall::new("", name, arguments)])
        };
        let reply = match &*results {
            [] => call("find_order", r#"{"id": 7}"#),
            [_] => call("pay_back", r#"{"id": 7, "euros": 30}"#),
            [order, paid, ..] => AssistantMessage::text(format!("I found {order}, and {paid}.")),
        };
        Box::pin(std::future::ready(Ok(ChatResponse::new(reply))))
    }
}

/// Serves the agent, whose calls the other worker executes, or the tools.
async fn serve(part: &str, address: &str) -> Result<(), Box<dyn std::error::Error>> {
    let tools = tools![find_order, pay_back];
    let worker = if part == "agent" {
        let clerk = Agent::builder(Clerk).name("clerk").tools(tools).build()?;
        Worker::new().agent(clerk).tools_at("shop", ["find_order", "pay_back"])
    } else {
        Worker::tools_only("shop", tools)
    };
    Ok(worker.serve(address, std::future::pending()).await?)
}

/// A process that ends with this one, together with the processes that it starts.
struct Process {
    child: Child,
    program: String,
}

impl Process {
    fn start(command: &mut Command) -> Result<Self, String> {
        let program = format!("`{}`", command.get_program().to_string_lossy());
        let started = command.process_group(0).spawn();
        let child = started.map_err(|error| format!("{program} cannot be started: {error}"))?;
        Ok(Self { child, program })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.child.wait();
    }
}

/// Returns an address at which nothing listens. Its port is below the ports of outgoing connections, so that none of them takes it
/// before it is bound.
fn free_address() -> std::io::Result<SocketAddr> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id().wrapping_mul(16).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + (number % 20_000) as u16;
        match TcpListener::bind(("127.0.0.1", port)) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            bound => return bound?.local_addr(),
        }
    }
}

/// A directory that is removed at the end.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Waits until a process listens at the address. Fails with the end of its log if it has ended, or takes too long.
async fn wait_for(process: &mut Process, address: SocketAddr, log: Option<&Path>) -> Result<(), String> {
    // `npx` may have to fetch the server.
    for _ in 0..2400 {
        if TcpStream::connect(address).await.is_ok() {
            return Ok(());
        }
        if let Ok(Some(status)) = process.child.try_wait() {
            let log = log.and_then(|log| fs::read_to_string(log).ok()).unwrap_or_default();
            let last: Vec<_> = log.lines().rev().take(10).collect();
            let last: Vec<_> = last.into_iter().rev().collect();
            return Err(format!("{} ended ({status}): {}", process.program, last.join("\n")));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(format!("{} does not listen at {address}", process.program))
}

fn start_worker(part: &str, address: SocketAddr) -> Result<Process, Box<dyn std::error::Error>> {
    let mut command = Command::new(env::current_exe()?);
    Ok(Process::start(command.args(["serve", part, &address.to_string()]))?)
}

/// Starts the server, with ports of its own and its data and its log in this directory.
fn start_server(
    ingress: SocketAddr,
    admin: SocketAddr,
    data: &Path,
) -> Result<Process, Box<dyn std::error::Error>> {
    let exists =
        |program: &str| Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    let mut command = match env::var("RESTATE_SERVER") {
        Ok(path) => Command::new(path),
        Err(_) if exists("restate-server") => Command::new("restate-server"),
        Err(_) if exists("npx") => {
            let mut npx = Command::new("npx");
            npx.args(["--yes", "@restatedev/restate-server@1.7.12"]);
            npx
        }
        Err(_) => {
            return Err(
                "there is neither `restate-server` nor `npx`; install one of them, or set RESTATE_SERVER"
                    .into(),
            );
        }
    };
    let node = free_address()?.port().to_string();
    let log = fs::File::create(data.join("log"))?;
    command.arg("--no-logo").stdout(log.try_clone()?).stderr(log).env("RESTATE_BASE_DIR", data.join("data"));
    command.env("RESTATE_INGRESS__BIND_ADDRESS", ingress.to_string());
    command.env("RESTATE_ADMIN__BIND_ADDRESS", admin.to_string());
    command.env("RESTATE_BIND_PORT", node).env("RESTATE_LISTEN_MODE", "tcp");
    command.env("RESTATE_DISABLE_TELEMETRY", "true");
    Ok(Process::start(&mut command)?)
}

fn shown(wait: &Wait) -> String {
    match &wait.reason {
        WaitReason::Approval(call) => call.to_string(),
        _ => wait.tool.clone(),
    }
}

async fn approve(url: &str, key: &str) -> Result<(), Box<dyn std::error::Error>> {
    let run = Client::connect(url)?.agent("clerk").run(key);
    if let RemoteOutcome::Waiting(waits) = run.wait().await? {
        run.decide(&waits[0].id, Decision::approve().by("you")).await?;
        println!("approved: {}", shown(&waits[0]));
    }
    Ok(())
}

async fn demonstrate(approves_itself: bool) -> Result<(), Box<dyn std::error::Error>> {
    let (ingress, admin) = (free_address()?, free_address()?);
    let (agent, shop) = (free_address()?, free_address()?);
    println!("Starting a Restate server and two workers …");
    let data = Directory(env::temp_dir().join(format!("durable-{}", std::process::id())));
    fs::create_dir_all(&data.0)?;
    let mut server = start_server(ingress, admin, &data.0)?;
    let mut worker_of_agent = start_worker("agent", agent)?;
    let mut worker_of_tools = start_worker("tools", shop)?;
    let log = data.0.join("log");
    wait_for(&mut server, ingress, Some(&log)).await?;
    wait_for(&mut server, admin, Some(&log)).await?;
    wait_for(&mut worker_of_agent, agent, None).await?;
    wait_for(&mut worker_of_tools, shop, None).await?;
    for worker in [agent, shop] {
        let admin = format!("http://{admin}");
        let mut attempts = 0;
        // The server listens before it can register.
        while let Err(error) = register(&admin, &format!("http://{worker}")).await {
            attempts += 1;
            if attempts == 100 {
                return Err(error.into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    let url = format!("http://{ingress}");
    let clerk = Client::connect(&url)?.agent("clerk");
    let run = loop {
        match clerk.ask("Pay back order 7").key("order-7").send().await {
            // The server's ingress knows a new worker after a moment.
            Err(error) if error.kind() == ErrorKind::UnknownAgent => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            sent => break sent?,
        }
    };
    println!("Asked: Pay back order 7");
    tokio::time::sleep(Duration::from_secs(1)).await;

    println!("Killing the worker with the tools, in the middle of the search, and starting another …");
    drop(worker_of_tools);
    worker_of_tools = start_worker("tools", shop)?;
    let RemoteOutcome::Waiting(waits) = run.wait().await? else {
        return Err("the run needs an approval".into());
    };
    println!("Waiting for an approval: {}", shown(&waits[0]));
    println!("Killing the worker with the agent; the run needs no process while it waits …");
    drop(worker_of_agent);
    worker_of_agent = start_worker("agent", agent)?;
    if approves_itself {
        Command::new(env::current_exe()?).args(["approve", &url, run.key()]).status()?;
    } else {
        println!("In another terminal: cargo run --example durable approve {url} {}", run.key());
    }
    // Until the call is decided, waiting returns it again.
    loop {
        match run.wait().await? {
            RemoteOutcome::Waiting(_) => tokio::time::sleep(Duration::from_millis(500)).await,
            RemoteOutcome::Answer(answer) => break println!("Answer: {answer}"),
            RemoteOutcome::Failed(failure) => return Err(failure.into()),
            _ => return Err("unexpected outcome".into()),
        }
    }
    drop((worker_of_agent, worker_of_tools));
    Ok(())
}

/// Ends the processes also if this one is interrupted.
async fn demonstrate_until_interrupted(approves_itself: bool) -> Result<(), Box<dyn std::error::Error>> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        done = demonstrate(approves_itself) => done,
        _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
        _ = terminate.recv() => Err("terminated".into()),
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match &*arguments {
        [] => demonstrate_until_interrupted(false).await,
        ["--approve"] => demonstrate_until_interrupted(true).await,
        ["serve", part, address] => serve(part, address).await,
        ["approve", url, key] => approve(url, key).await,
        _ => Err("usage: durable [--approve] | durable approve URL KEY".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
