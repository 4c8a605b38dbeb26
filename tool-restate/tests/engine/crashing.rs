//! Two workers, and the server itself, are killed again and again while runs go on: each ends as an undisturbed one does.
//!
//! `CRASH_RUNS` is the number of runs, and `CRASH_SERVER_KILLS` that of the deaths of the server; with `CRASH_LOCAL_CALLS`, calls are local. Workers are other processes of this
//! test, behind a proxy with one address. Each execution is a line in a file when it begins, and another when it takes effect: an
//! execution may follow another one of the same call only if the process of the first, or the server, was killed meanwhile.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::{StreamExt, stream};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tool_core::model::{AssistantMessage, ChatModel, ChatRequest, ChatResponse, ModelFuture};
use tool_core::run::StopReason;
use tool_core::tool::{IdempotencyKey, ToolErrorKind};
use tool_core::{Agent, Approval, Message, ToolCall, ToolError, tool, tools};
use tool_restate::{Client, Error, ErrorKind, Outcome, Run, Worker, register};

use crate::support::{free_address, http};

const ADDRESS: &str = "CRASH_WORKER_ADDRESS";
const EFFECTS: &str = "CRASH_EFFECTS";

/// Calls the tools that the question lists, those with `+` between them in one turn, and answers with their results.
struct Lister;

impl ChatModel for Lister {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        // The last question of a conversation counts.
        let asked = request.messages().iter().rposition(|one| matches!(one, Message::User(_))).unwrap();
        let messages = &request.messages()[asked..];
        let question = messages[0].text().into_owned();
        let (label, turns) = question.split_once(": ").unwrap();
        let turn = messages.iter().filter(|one| one.as_assistant().is_some()).count();
        let reply = match turns.split(' ').nth(turn) {
            Some(names) => {
                let calls = names.split('+').enumerate().map(|(position, name)| {
                    let step = 10 * turn + position;
                    let arguments = format!(r#"{{"label": "{label}", "step": {step}}}"#);
                    ToolCall::new(format!("{label}c{step}"), name, arguments)
                });
                AssistantMessage::default().with_tool_calls(calls)
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

fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()
}

fn write_line(phase: &str, kind: &str, label: &str, step: u32, key: &IdempotencyKey) {
    let mut file = OpenOptions::new().append(true).open(env::var(EFFECTS).unwrap()).unwrap();
    let (process, now) = (std::process::id(), now());
    file.write_all(format!("{label} {kind}{step} {phase} {key} {process} {now}\n").as_bytes()).unwrap();
}

/// Records that a call begins, and that it has its effect, in the middle of its time.
async fn effect(kind: &str, label: &str, step: u32, key: &IdempotencyKey) -> String {
    write_line("begin", kind, label, step, key);
    tokio::time::sleep(Duration::from_millis(10)).await;
    write_line("effect", kind, label, step, key);
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

#[tool("Takes longer")]
async fn hang(label: String, step: u32, #[inject] key: &IdempotencyKey) {
    write_line("begin", "hang", &label, step, key);
    tokio::time::sleep(Duration::from_millis(300)).await;
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
    let clerk = Agent::builder(Lister).name("clerk").tools(tools![note, once, book, ask, hang, fail]);
    let clerk = clerk.undo_tools(tools![unbook]).max_repeated_calls(100).build().unwrap();
    let worker = Worker::new().agent(clerk);
    let worker = if env::var_os("CRASH_LOCAL_CALLS").is_some() { worker.local_calls() } else { worker };
    worker.serve(address, std::future::pending()).await.unwrap();
}

const QUESTIONS: [&str; 7] = [
    "note note note",
    "once note",
    "book book fail",
    "ask note",
    "note+once+note note+note",
    "book hang ask",
    "note note",
];

/// The questions whose runs are cancelled, twice, and those that belong to conversations.
const CANCELLED: usize = 5;
const CONVERSES: usize = 6;
const CONVERSATIONS: usize = 3;

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

fn conversation_of(number: usize) -> String {
    format!("talk-{}", number / QUESTIONS.len() % CONVERSATIONS)
}

async fn drive(client: Client, effects: PathBuf, number: usize) -> (usize, Outcome) {
    let clerk = client.agent("clerk");
    let question = || format!("r{number}: {}", QUESTIONS[number % QUESTIONS.len()]);
    let kind = number % QUESTIONS.len();
    let send = || {
        let question = clerk.ask(question()).key(format!("r{number}"));
        match kind == CONVERSES {
            true => question.conversation(conversation_of(number)).send(),
            false => question.send(),
        }
    };
    let run: Run = patiently(send).await.unwrap();
    if kind == CANCELLED {
        let begun = format!("r{number} hang10 begin ");
        while !fs::read_to_string(&effects).unwrap().contains(&begun) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for _ in 0..2 {
            patiently(|| run.cancel()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    loop {
        match patiently(|| run.wait()).await.unwrap() {
            // It waits until it is cancelled.
            Outcome::NeedsApproval(_) if kind == CANCELLED => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
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
    let (results, seen, reader) = (Arc::clone(&ended), effects.clone(), client.clone());
    let driving = tokio::spawn(async move {
        let mut driven = stream::iter((0..runs).map(|number| drive(client.clone(), seen.clone(), number)))
            .buffer_unordered(16);
        while let Some((number, outcome)) = driven.next().await {
            results.lock().unwrap().insert(number, outcome);
        }
    });

    let seed = u64::from(std::process::id());
    let mut dice = Dice(seed);
    let mut deaths = Vec::new();
    let mut server_deaths = 0;
    let started = Instant::now();
    while !driving.is_finished() {
        tokio::time::sleep(Duration::from_millis(100 + dice.below(700))).await;
        let victim = usize::try_from(dice.below(2)).unwrap();
        let process = workers[victim].id().unwrap();
        workers[victim].kill().await.unwrap();
        deaths.push(Death { process: Some(process), at: now() });
        workers[victim] = start_worker(addresses[victim], &effects);
        // The deaths of the server are spread over the runs.
        let done = ended.lock().unwrap().len();
        if server_deaths < server_kills && done * (server_kills + 1) >= runs * (server_deaths + 1) {
            engine.kill().await.unwrap();
            server_deaths += 1;
            deaths.push(Death { process: None, at: now() });
            engine = server.start();
            server.wait().await;
        }
        assert!(started.elapsed() < Duration::from_secs(300), "{done} of {runs} runs ended, seed {seed}");
    }
    driving.await.unwrap();
    println!("{runs} runs, {} deaths, {server_deaths} of the server, {:?}", deaths.len(), started.elapsed());
    for conversation in 0..CONVERSATIONS.min(runs) {
        check_conversation(&reader, conversation, runs).await;
    }
    proxy.abort();
    check(&ended.lock().unwrap(), runs, &fs::read_to_string(&effects).unwrap(), &deaths, seed);
    drop((engine, workers));
    fs::remove_dir_all(&directory).unwrap();
}

/// The death of a process, or of the server.
struct Death {
    process: Option<u32>,
    at: u128,
}

/// One execution of a call.
struct Execution<'a> {
    step: &'a str,
    key: &'a str,
    process: u32,
    at: u128,
    has_effect: bool,
}

/// Each question of the conversation is in it once, with its answer.
async fn check_conversation(client: &Client, conversation: usize, runs: usize) {
    let mut expected: Vec<_> = (0..runs)
        .filter(|number| number % QUESTIONS.len() == CONVERSES)
        .filter(|number| number / QUESTIONS.len() % CONVERSATIONS == conversation)
        .map(|number| format!("r{number}: {}", QUESTIONS[CONVERSES]))
        .collect();
    expected.sort();
    let clerk = client.agent("clerk");
    // The last messages arrive soon after the end of their run.
    let id = format!("talk-{conversation}");
    for attempt in 1..=200 {
        let messages = patiently(|| clerk.conversation(&id)).await.unwrap();
        let users = messages.iter().filter(|one| matches!(one, Message::User(_)));
        let mut questions: Vec<_> = users.map(|one| one.text().into_owned()).collect();
        questions.sort();
        if questions == expected {
            return;
        }
        assert!(attempt < 200, "conversation {conversation}: {questions:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn read(effects: &str) -> BTreeMap<&str, Vec<Execution<'_>>> {
    let mut by_run: BTreeMap<&str, Vec<Execution<'_>>> = BTreeMap::new();
    for line in effects.lines() {
        let [label, step, phase, key, process, at] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let (process, at) = (process.parse().unwrap(), at.parse().unwrap());
        let executions = by_run.entry(label).or_default();
        if phase == "begin" {
            executions.push(Execution { step, key, process, at, has_effect: false });
        } else {
            let is_it = |one: &&mut Execution<'_>| one.step == step && one.process == process;
            executions.iter_mut().rfind(is_it).unwrap().has_effect = true;
        }
    }
    by_run
}

fn check(ended: &BTreeMap<usize, Outcome>, runs: usize, effects: &str, deaths: &[Death], seed: u64) {
    assert_eq!(ended.len(), runs, "seed {seed}");
    let by_run = read(effects);
    // Calls of `once` whose process died between the record of the beginning and the beginning.
    let mut unbegun = 0;
    for (number, outcome) in ended {
        let what = format!("r{number}: {}, seed {seed}", QUESTIONS[number % QUESTIONS.len()]);
        let executions = by_run.get(&*format!("r{number}")).map(Vec::as_slice).unwrap_or_default();
        let mut steps: BTreeMap<&str, Vec<&Execution<'_>>> = BTreeMap::new();
        let mut order: Vec<&str> = Vec::new();
        for execution in executions {
            let earlier = steps.entry(execution.step).or_default();
            match earlier.last() {
                Some(last) => {
                    let explains = |death: &Death| {
                        death.process.is_none_or(|process| process == last.process)
                            && (last.at..=execution.at).contains(&death.at)
                    };
                    assert!(
                        deaths.iter().any(explains),
                        "{what}: {} again, and nothing died",
                        execution.step
                    );
                    assert_eq!(last.key, execution.key, "{what}: {} under another key", execution.step);
                    assert!(!execution.step.starts_with("once"), "{what}: {} again", execution.step);
                }
                None => order.push(execution.step),
            }
            earlier.push(execution);
        }
        let mut unknown = Vec::new();
        let records = match outcome {
            Outcome::Answer(answer) => answer.tool_executions(),
            Outcome::Failed(failure) => &failure.tool_executions,
            other => panic!("{what}: {other:?}"),
        };
        for record in records {
            let is_unknown =
                record.outcome().is_err_and(|error| error.kind() == ToolErrorKind::OutcomeUnknown);
            if is_unknown && record.call().name == "once" {
                let step = record.call().id.rsplit('c').next().unwrap();
                let step = format!("once{step}");
                match steps.get(&*step).map(|all| all[0]) {
                    Some(execution) => {
                        let explains = |death: &Death| {
                            death.process.is_none_or(|process| process == execution.process)
                                && death.at >= execution.at
                        };
                        assert!(deaths.iter().any(explains), "{what}: unknown, and nothing died");
                    }
                    None => {
                        unbegun += 1;
                        order.push("once");
                    }
                }
                unknown.push(step);
            }
        }
        let (expected, answer): (&[&str], &str) = match number % QUESTIONS.len() {
            0 => (&["note0", "note10", "note20"], "note0 note10 note20"),
            1 => (&["once0", "note10"], "once0 note10"),
            2 => (&["book0", "book10", "unbook10", "unbook0"], ""),
            3 => (&["ask0", "note10"], "ask0 note10"),
            4 => (&["note0", "note10", "note11", "note2", "once1"], "note0 once1 note2 note10 note11"),
            CANCELLED => (&["book0", "hang10", "unbook0"], ""),
            _ => (&["note0", "note10"], "note0 note10"),
        };
        // Calls of one turn begin in any order; `once` may not have begun.
        if number % QUESTIONS.len() == 4 || !unknown.is_empty() {
            order.sort_unstable();
        }
        let mut expected: Vec<String> = expected.iter().map(|step| (*step).to_owned()).collect();
        if order.contains(&"once") {
            expected
                .iter_mut()
                .filter(|step| unknown.contains(step))
                .for_each(|step| "once".clone_into(step));
        }
        if number % QUESTIONS.len() == 4 || !unknown.is_empty() {
            expected.sort_unstable();
        }
        assert_eq!(order, expected, "{what}");
        // What has ended with a result has had its effect.
        for (step, executions) in &steps {
            let has_effect = executions.iter().any(|one| one.has_effect);
            let may_lack = step.starts_with("hang") || unknown.iter().any(|one| one == step);
            assert!(has_effect || may_lack, "{what}: {step} without an effect");
        }
        match outcome {
            Outcome::Answer(reply) if unknown.is_empty() => assert_eq!(reply.text(), answer, "{what}"),
            Outcome::Answer(_) => {}
            Outcome::Failed(failure) => {
                let is_cancelled = matches!(failure.reason, Some(StopReason::Cancelled));
                let has_failed = matches!(failure.reason, Some(StopReason::ToolFailed { .. }));
                let kind = number % QUESTIONS.len();
                assert!(kind == CANCELLED && is_cancelled || kind == 2 && has_failed, "{what}: {failure:?}");
                let undone = failure.undo_executions.iter().filter(|one| one.outcome().is_ok()).count();
                assert_eq!(undone, if kind == 2 { 2 } else { 1 }, "{what}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
    assert!(
        unbegun <= deaths.len() / 10 + 1,
        "{unbegun} calls of `once` are unknown and did not begin, seed {seed}"
    );
}
