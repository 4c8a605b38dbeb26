//! Processes that contend for a stored run: one of them continues it, and the others execute nothing.
//!
//! The other process is this test binary, which takes its orders from its standard input.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use tests::support::deciding::Decide;
use tests::support::sampling::size;
use tests::support::stores::run_ids;
use tool_core::memory::RunStatus;
use tool_core::run::{Decision, Run, RunId};
use tool_core::store::RunStore;
use tool_core::testing::ScriptedModel;
use tool_core::tool::IdempotencyKey;
use tool_core::{Agent, RunErrorKind, SqliteStore, tool, tools};

/// The environment variable with the directory of the files of a process.
const DIRECTORY: &str = "TOOL_CONTENDING_DIRECTORY";

/// The path of [`one_process`].
const ONE_PROCESS: &str = "contending::one_process";

/// Shorter than by default, because a test waits until it is renewed, which happens ten times before it expires.
const LEASE: Duration = Duration::from_secs(5);

/// The prefix of each answer that a process prints, because the test harness also prints.
const MARK: &str = "> ";

/// The files of one test.
struct Files(PathBuf);

impl Files {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("contending_{number}"));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    async fn store(&self) -> SqliteStore {
        SqliteStore::open(self.0.join("store.db")).await.unwrap()
    }

    /// Returns when the only lease expires.
    fn lease_end(&self) -> i64 {
        let store = Connection::open(self.0.join("store.db")).unwrap();
        store.query_row("SELECT expires FROM leases", [], |row| row.get(0)).unwrap()
    }

    /// Lets all leases expire.
    fn expire_leases(&self) {
        let store = Connection::open(self.0.join("store.db")).unwrap();
        assert_eq!(store.execute("UPDATE leases SET expires = 0", []).unwrap(), 1);
    }

    /// Logs the effect of a call, with the id of its run.
    fn log(&self, line: &str) {
        let mut log = OpenOptions::new().create(true).append(true).open(self.0.join("log")).unwrap();
        log.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Returns how often the call of a run had its effect.
    fn effects(&self, run: &RunId) -> usize {
        let log = std::fs::read_to_string(self.0.join("log")).unwrap_or_default();
        log.lines().filter(|line| *line == run.as_str()).count()
    }

    /// The file until whose creation calls of `hold` last.
    fn release(&self) -> PathBuf {
        self.0.join("release")
    }
}

fn effect(files: &Files, key: &IdempotencyKey) {
    files.log(key.split('/').next().unwrap());
}

#[tool(at_most_once, needs_approval)]
fn pay(#[inject] files: &Files, #[inject] key: &IdempotencyKey) -> &'static str {
    effect(files, key);
    "paid"
}

/// Lasts until it is released.
#[tool(at_most_once, needs_approval)]
async fn hold(#[inject] files: &Files, #[inject] key: &IdempotencyKey) -> &'static str {
    effect(files, key);
    answer("executing");
    while !files.release().exists() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    "held"
}

async fn agent(model: ScriptedModel, directory: &Path) -> Agent {
    let files = || Files(directory.to_owned());
    let agent = Agent::builder(model).tools(tools![pay, hold]).context(files());
    agent.run_store(files().store().await).run_lease(LEASE).build().unwrap()
}

/// Stores a run whose call of the tool awaits approval.
async fn stored_run(files: &Files, tool: &str) -> RunId {
    let agent = agent(ScriptedModel::new().calls(tool, "{}"), &files.0).await;
    let error = agent.ask("Pay").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
    error.run().id().clone()
}

fn answer(text: &str) {
    println!("\n{MARK}{text}");
}

#[tokio::test]
#[ignore = "needs orders: the other tests start it in a process"]
async fn one_process() {
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).unwrap());
    let store = Files(directory.clone()).store().await;
    let mut loaded: HashMap<String, Run> = HashMap::new();
    for order in std::io::stdin().lines() {
        let order = order.unwrap();
        let (order, id) = order.split_once(' ').unwrap();
        match order {
            "load" => {
                loaded.insert(id.into(), store.load_run(id).await.unwrap().unwrap());
                answer("loaded");
            }
            "approve" => {
                let mut run = loaded.remove(id).unwrap();
                run.decide_calls(&Decision::approve());
                let agent = agent(ScriptedModel::new().says("Done."), &directory).await;
                match agent.resume(run).await {
                    Ok(done) => answer(&format!("answered: {}", done.new_messages()[2].text())),
                    Err(error) => answer(&error.to_string()),
                }
            }
            other => panic!("unknown order {other}"),
        }
    }
}

/// A process that takes orders.
struct Process {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Process {
    fn start(files: &Files) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", ONE_PROCESS, "--nocapture", "--test-threads=1"])
            .env(DIRECTORY, &files.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, orders, answers: BufReader::new(answers) }
    }

    fn order(&mut self, order: &str, run: &RunId) {
        self.orders.write_all(format!("{order} {run}\n").as_bytes()).unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.answers.read_line(&mut line).unwrap(), 0, "the process has ended");
            if let Some(answer) = line.strip_prefix(MARK) {
                return answer.trim_end().to_owned();
            }
        }
    }

    fn load(&mut self, run: &RunId) {
        self.order("load", run);
        assert_eq!(self.answer(), "loaded");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text of the error of a process that lost.
fn conflict(run: &RunId) -> String {
    format!(
        "the run `{run}` was continued or removed elsewhere since this copy was loaded; \
         load its current state with `stored_run`, if there is one, and resume that"
    )
}

fn running_elsewhere(run: &RunId) -> String {
    format!(
        "another driver works on the run `{run}`; `say`, `decide` or `cancel` reaches it, or resume its current state later"
    )
}

#[tokio::test]
async fn one_of_two_processes_executes_an_approved_call() {
    let files = Files::new();
    let mut processes = [Process::start(&files), Process::start(&files)];
    for _ in 0..size(20, 200) {
        let run = stored_run(&files, "pay").await;
        processes.iter_mut().for_each(|process| process.load(&run));
        processes.iter_mut().for_each(|process| process.order("approve", &run));
        let mut answers: Vec<_> = processes.iter_mut().map(Process::answer).collect();
        let winner = answers.iter().position(|answer| answer == "answered: paid");
        let lost = answers.remove(1 - winner.expect("one process executes the call"));
        // The loser comes while the winner has the lease, or after it.
        assert!([conflict(&run), running_elsewhere(&run)].contains(&lost), "{lost}");
        assert_eq!(files.effects(&run), 1);
    }
    assert_eq!(run_ids(&files.store().await).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_removed_run_does_not_return() {
    let files = Files::new();
    let store = files.store().await;
    let mut processes = [Process::start(&files), Process::start(&files)];
    for is_finished in [true, false] {
        let run = stored_run(&files, "pay").await;
        processes.iter_mut().for_each(|process| process.load(&run));
        if is_finished {
            processes[0].order("approve", &run);
            assert_eq!(processes[0].answer(), "answered: paid");
        } else {
            store.remove_run(run.as_str()).await.unwrap();
        }
        processes[1].order("approve", &run);
        assert_eq!(processes[1].answer(), conflict(&run));
        assert_eq!(files.effects(&run), usize::from(is_finished));
        assert_eq!(run_ids(&store).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_run_that_is_removed_while_it_runs_stays_removed() {
    let files = Files::new();
    let store = files.store().await;
    let mut process = Process::start(&files);
    let run = stored_run(&files, "hold").await;
    process.load(&run);
    process.order("approve", &run);
    assert_eq!(process.answer(), "executing");
    store.remove_run(run.as_str()).await.unwrap();
    std::fs::write(files.release(), "").unwrap();
    assert_eq!(process.answer(), conflict(&run));
    assert_eq!(run_ids(&store).await, Vec::<String>::new());
}

/// Others see a run that a process drives, cannot resume it for longer than its lease, and can cancel it.
#[tokio::test]
async fn a_process_that_drives_a_run_takes_what_others_post() {
    let files = Files::new();
    let run = stored_run(&files, "hold").await;
    let mut process = Process::start(&files);
    process.load(&run);
    process.order("approve", &run);
    assert_eq!(process.answer(), "executing");
    let observer = agent(ScriptedModel::new(), &files.0).await;
    let taken = files.lease_end();
    while files.lease_end() == taken {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let stored = observer.stored_run(run.as_str()).await.unwrap().unwrap();
    assert_eq!(stored.status, RunStatus::RunningElsewhere);
    assert_eq!(observer.resume(stored.run).await.unwrap_err().to_string(), running_elsewhere(&run));
    observer.cancel(run.as_str()).await.unwrap();
    assert_eq!(process.answer(), "the run was cancelled");
    assert_eq!(files.effects(&run), 1);
    assert_eq!(run_ids(&files.store().await).await, Vec::<String>::new());
}

/// The process that continued the run dies during its call; another one takes over and does not repeat the call.
#[tokio::test]
async fn a_process_that_dies_does_not_block_its_run() {
    let files = Files::new();
    let run = stored_run(&files, "hold").await;
    let mut first = Process::start(&files);
    first.load(&run);
    first.order("approve", &run);
    assert_eq!(first.answer(), "executing");
    drop(first);
    let mut second = Process::start(&files);
    let observer = agent(ScriptedModel::new(), &files.0).await;
    let status = async || observer.stored_run(run.as_str()).await.unwrap().unwrap().status;
    assert_eq!(status().await, RunStatus::RunningElsewhere);
    files.expire_leases();
    assert_eq!(status().await, RunStatus::Interrupted);
    second.load(&run);
    second.order("approve", &run);
    let answer = second.answer();
    assert!(answer.starts_with("answered: the outcome of the call is unknown"), "{answer}");
    assert_eq!(files.effects(&run), 1);
}
