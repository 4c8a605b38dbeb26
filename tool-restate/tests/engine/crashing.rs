//! Two workers, and the server itself, are killed again and again while runs go on: each ends as an undisturbed one does.
//!
//! `CRASH_RUNS` is the number of runs, and `CRASH_SERVER_KILLS` that of the deaths of the server; with `CRASH_LOCAL_CALLS`, calls are local. Workers are other processes of this
//! test, behind a proxy with one address. Each effect is a line in a file.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tool_core::model::{AssistantMessage, ChatModel, ChatRequest, ChatResponse, ModelFuture};
use tool_core::run::StopReason;
use tool_core::tool::IdempotencyKey;
use tool_core::{Agent, Approval, Message, ToolCall, ToolError, tool, tools};
use tool_restate::{Client, Error, ErrorKind, Outcome, Run, Worker, register};

use crate::support::{free_address, http};

const ADDRESS: &str = "CRASH_WORKER_ADDRESS";
const EFFECTS: &str = "CRASH_EFFECTS";

/// Calls the tools that the question lists, one per turn, and answers with their results.
struct Lister;

impl ChatModel for Lister {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let messages = request.messages();
        let question = messages[0].text().into_owned();
        let (label, names) = question.split_once(": ").unwrap();
        let turn = messages.iter().filter(|one| one.as_assistant().is_some()).count();
        let reply = match names.split(' ').nth(turn) {
            Some(name) => {
                let arguments = format!(r#"{{"label": "{label}", "step": {turn}}}"#);
                AssistantMessage::default().with_tool_calls([ToolCall::new(
                    format!("c{turn}"),
                    name,
                    arguments,
                )])
            }
            None => {
                let results = messages.iter().filter(|one| matches!(one, Message::Tool(_)));
                let results: Vec<_> = results.map(|one| one.text().into_owned()).collect();
                AssistantMessage::text(results.join(" "))
            }
        };
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Ok(ChatResponse::new(reply))
        })
    }
}

/// Records that a call has its effect, in the middle of its time.
async fn effect(kind: &str, label: &str, step: u32, key: &IdempotencyKey) -> String {
    tokio::time::sleep(Duration::from_millis(10)).await;
    let mut file = OpenOptions::new().append(true).open(env::var(EFFECTS).unwrap()).unwrap();
    file.write_all(format!("{label} {step} {kind} {key}\n").as_bytes()).unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    format!("{kind}{step}")
}

#[tool("Notes something")]
async fn note(label: String, step: u32, #[inject] key: &IdempotencyKey) -> String {
    effect("note", &label, step, key).await
}

#[tool("Takes effect at most once", at_most_once)]
async fn once(label: String, step: u32, #[inject] key: &IdempotencyKey) -> String {
    effect("once", &label, step, key).await
}

#[tool("Books something", undo = "unbook")]
async fn book(label: String, step: u32, #[inject] key: &IdempotencyKey) -> String {
    effect("book", &label, step, key).await
}

#[tool("Cancels a booking")]
async fn unbook(label: String, step: u32, #[inject] key: &IdempotencyKey) -> String {
    effect("unbook", &label, step, key).await
}

#[tool("Needs a person", needs_approval)]
async fn ask(label: String, step: u32, #[inject] key: &IdempotencyKey) -> String {
    effect("ask", &label, step, key).await
}

#[tool("Fails for good")]
fn fail(label: String, step: u32) -> Result<(), ToolError> {
    Err(ToolError::fatal(format!("{label} {step}")))
}

/// The process of a worker; a test only by its form.
#[tokio::test]
#[ignore = "a process of `runs_survive_their_workers_and_the_server`"]
async fn worker_process() {
    let Ok(address) = env::var(ADDRESS) else { return };
    let clerk = Agent::builder(Lister).name("clerk").tools(tools![note, once, book, ask, fail]);
    let clerk = clerk.undo_tools(tools![unbook]).max_repeated_calls(100).build().unwrap();
    let worker = Worker::new().agent(clerk);
    let worker = if env::var_os("CRASH_LOCAL_CALLS").is_some() { worker.local_calls() } else { worker };
    worker.serve(address, std::future::pending()).await.unwrap();
}

const QUESTIONS: [&str; 4] = ["note note note", "once note", "book book fail", "ask note"];

fn start_worker(address: SocketAddr, effects: &Path) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "crashing::worker_process", "--include-ignored"]);
    command.env(ADDRESS, address.to_string()).env(EFFECTS, effects).kill_on_drop(true);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// A server of its own, in a directory that outlives it.
struct Server {
    directory: PathBuf,
    ingress: SocketAddr,
    admin: SocketAddr,
    node: SocketAddr,
}

impl Server {
    fn start(&self) -> Child {
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
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    async fn wait(&self) {
        for url in
            [format!("http://{}/restate/health", self.ingress), format!("http://{}/health", self.admin)]
        {
            while !http().get(&url).send().await.is_ok_and(|response| response.status().is_success()) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Forwards connections to the workers in turn.
async fn proxy(listener: TcpListener, workers: [SocketAddr; 2]) {
    let mut next = 0;
    while let Ok((mut incoming, _)) = listener.accept().await {
        next += 1;
        let order = [workers[next % 2], workers[(next + 1) % 2]];
        tokio::spawn(async move {
            for worker in order {
                if let Ok(mut outgoing) = TcpStream::connect(worker).await {
                    let _ = (incoming.set_nodelay(true), outgoing.set_nodelay(true));
                    let _ = tokio::io::copy_bidirectional(&mut incoming, &mut outgoing).await;
                    return;
                }
            }
        });
    }
}

fn is_unreachable(error: &Error) -> bool {
    // A server that starts does not know its services yet.
    matches!(error.kind(), ErrorKind::Connect | ErrorKind::Server | ErrorKind::UnknownAgent)
}

async fn patiently<T, F: Future<Output = Result<T, Error>>>(
    mut request: impl FnMut() -> F,
) -> Result<T, Error> {
    loop {
        match request().await {
            Err(error) if is_unreachable(&error) => tokio::time::sleep(Duration::from_millis(100)).await,
            other => return other,
        }
    }
}

async fn drive(client: Client, number: usize) -> (usize, Outcome) {
    let clerk = client.agent("clerk");
    let question = || format!("r{number}: {}", QUESTIONS[number % QUESTIONS.len()]);
    let send = || clerk.ask(question()).key(format!("r{number}")).send();
    let run: Run = patiently(send).await.unwrap();
    loop {
        match patiently(|| run.wait()).await.unwrap() {
            Outcome::NeedsApproval(calls) => {
                let decide = || run.resolve_approval(&calls[0].id, Approval::Approve);
                match patiently(decide).await {
                    Ok(()) => {}
                    // The server was killed between the decision and its acknowledgement.
                    Err(error) => assert_eq!(error.kind(), ErrorKind::AlreadyDecided, "{error}"),
                }
            }
            ended => return (number, ended),
        }
    }
}

fn number_of(variable: &str, default: usize) -> usize {
    env::var(variable).map_or(default, |value| value.parse().unwrap())
}

/// A source of numbers; the seed is printed with a failure.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a Restate server"]
async fn runs_survive_their_workers_and_the_server() {
    let runs = number_of("CRASH_RUNS", 200);
    let server_kills = number_of("CRASH_SERVER_KILLS", 20);
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("crash-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let effects = directory.join("effects");
    fs::write(&effects, "").unwrap();
    let server = Server {
        directory: directory.clone(),
        ingress: free_address(),
        admin: free_address(),
        node: free_address(),
    };
    let server = Arc::new(server);
    let mut engine = server.start();
    server.wait().await;

    let addresses = [free_address(), free_address()];
    let mut workers = addresses.map(|address| start_worker(address, &effects));
    for address in addresses {
        while TcpStream::connect(address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let proxy = tokio::spawn(proxy(listener, addresses));
    register(&format!("http://{}", server.admin), &uri).await.unwrap();

    let client = Client::connect(&format!("http://{}", server.ingress)).unwrap();
    let ended: Arc<Mutex<BTreeMap<usize, Outcome>>> = Arc::default();
    let results = Arc::clone(&ended);
    let driving = tokio::spawn(async move {
        let mut driven =
            stream::iter((0..runs).map(|number| drive(client.clone(), number))).buffer_unordered(16);
        while let Some((number, outcome)) = driven.next().await {
            results.lock().unwrap().insert(number, outcome);
        }
    });

    let seed = u64::from(std::process::id());
    let mut dice = Dice(seed);
    let (mut worker_deaths, mut server_deaths) = (0, 0);
    let started = Instant::now();
    while !driving.is_finished() {
        tokio::time::sleep(Duration::from_millis(100 + dice.below(700))).await;
        let victim = usize::try_from(dice.below(2)).unwrap();
        workers[victim].kill().await.unwrap();
        worker_deaths += 1;
        workers[victim] = start_worker(addresses[victim], &effects);
        // The deaths of the server are spread over the runs.
        let done = ended.lock().unwrap().len();
        if server_deaths < server_kills && done * (server_kills + 1) >= runs * (server_deaths + 1) {
            engine.kill().await.unwrap();
            server_deaths += 1;
            engine = server.start();
            server.wait().await;
        }
        assert!(started.elapsed() < Duration::from_secs(300), "{done} of {runs} runs ended, seed {seed}");
    }
    driving.await.unwrap();
    proxy.abort();
    println!(
        "{runs} runs, {worker_deaths} deaths of workers, {server_deaths} of the server, {:?}",
        started.elapsed()
    );
    check(&ended.lock().unwrap(), runs, &fs::read_to_string(&effects).unwrap(), seed);
    drop((engine, workers));
    fs::remove_dir_all(&directory).unwrap();
}

fn check(ended: &BTreeMap<usize, Outcome>, runs: usize, effects: &str, seed: u64) {
    assert_eq!(ended.len(), runs, "seed {seed}");
    let mut by_run: BTreeMap<&str, Vec<Vec<&str>>> = BTreeMap::new();
    for line in effects.lines() {
        let mut words = line.split(' ');
        by_run.entry(words.next().unwrap()).or_default().push(words.collect());
    }
    for (number, outcome) in ended {
        let label = format!("r{number}");
        let effects = &by_run[&*label];
        // No call is executed again after its result was recorded, which is before the next one begins.
        let mut order: Vec<&[&str]> = effects.iter().map(|one| &one[..2]).collect();
        order.dedup();
        let steps: Vec<String> = order.iter().map(|one| format!("{}{}", one[1], one[0])).collect();
        let (expected, answer): (&[&str], &str) = match number % QUESTIONS.len() {
            0 => (&["note0", "note1", "note2"], "note0 note1 note2"),
            1 => (&["once0", "note1"], "once0 note1"),
            2 => (&["book0", "book1", "unbook1", "unbook0"], ""),
            _ => (&["ask0", "note1"], "ask0 note1"),
        };
        match outcome {
            Outcome::Failed(failure) => {
                assert_eq!(number % QUESTIONS.len(), 2, "{label}: {} (seed {seed})", failure.message);
                assert!(
                    matches!(failure.reason, Some(StopReason::ToolFailed { .. })),
                    "{label}: {failure:?}"
                );
                assert_eq!(failure.undo_executions.len(), 2, "{label} {seed}");
                assert_eq!(steps, expected, "{label}, seed {seed}");
            }
            Outcome::Answer(reply) if number % QUESTIONS.len() == 1 => {
                let executed = effects.iter().filter(|one| one[1] == "once").count();
                assert!(executed <= 1, "{label} executed a call twice that must not be, seed {seed}");
                let is_unknown = reply.text().starts_with("the outcome of the call is unknown");
                assert!(
                    is_unknown || (reply.text() == answer && steps == expected),
                    "{label}: {reply}, seed {seed}"
                );
            }
            Outcome::Answer(reply) => {
                assert_eq!(reply.text(), answer, "{label}, seed {seed}");
                assert_eq!(steps, expected, "{label}, seed {seed}");
            }
            other => panic!("{label}: {other:?}, seed {seed}"),
        }
        // All executions of a call have one key.
        for step in &steps {
            let keys: std::collections::BTreeSet<_> = effects
                .iter()
                .filter(|one| format!("{}{}", one[1], one[0]) == *step)
                .map(|one| one[2])
                .collect();
            assert_eq!(keys.len(), 1, "{label} {step}, seed {seed}");
        }
    }
}
