//! Cost of storing a run in SQLite: bytes, saves and CPU time of a turn with one call, and of a reply with many calls.
//! `cargo bench -p tests --bench stored` prints them beside an append of the same bytes by hand, and fails if one exceeds its bound.
//!
//! The model answers at once, outputs have 400 bytes, and the CPU time includes the whole process, because the store has its own
//! thread.

use std::error::Error;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tool_core::memory::{RunFilter, RunSummary};
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse};
use tool_core::provider::ModelFuture;
use tool_core::run::Run;
use tool_core::store::{RunChanges, RunLog, RunRevision, RunStore, SaveOutcome, StoreFuture};
use tool_core::{Agent, ChatModel, SqliteStore, ToolCall, tool, tools};

const TURNS: u32 = 810;
const OUTPUT_BYTES: usize = 400;

/// The numbers of turns after which the next ten are measured.
const AFTER: [u32; 4] = [10, 50, 200, 800];

const BYTES_BOUND: f64 = 1.2;
const TIME_BOUND: f64 = 1.3;
const SAVES_BOUND: f64 = 3.0;

/// The numbers of calls of one reply. The bytes of the second must not grow more than the number of its calls.
const PARALLEL: [u32; 2] = [250, 1_000];

/// What was spent so far.
#[derive(Clone, Copy, Default)]
struct Spent {
    bytes: u64,
    saves: u64,
    time: Duration,
}

impl Spent {
    /// Returns the share of one of so many, since an earlier time.
    fn since(self, earlier: Self, count: u32) -> [f64; 3] {
        let micros = (self.time - earlier.time).as_secs_f64() * 1e6;
        let values = [(self.bytes - earlier.bytes) as f64, (self.saves - earlier.saves) as f64, micros];
        values.map(|value| value / f64::from(count))
    }
}

fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).expect("CPU time is not negative")
}

/// Counts what is saved.
struct Counting {
    store: SqliteStore,
    counts: Arc<(AtomicU64, AtomicU64)>,
}

impl RunStore for Counting {
    fn append_run<'a>(
        &'a self,
        id: &'a str,
        expected: Option<&'a RunRevision>,
        changes: &'a RunChanges,
    ) -> StoreFuture<'a, SaveOutcome> {
        let before = cpu_time();
        let parts = changes.parts().expect("a run can be serialized").into_iter();
        let bytes: usize = parts.map(|(key, part)| key.len() + part.map_or(0, |part| part.len())).sum();
        let entries = changes.entries().expect("a run can be serialized").into_iter();
        let bytes = bytes + entries.map(|(_, entry)| entry.len()).sum::<usize>();
        COUNTING.fetch_add((cpu_time() - before).as_nanos() as u64, Relaxed);
        self.counts.0.fetch_add(bytes as u64, Relaxed);
        self.counts.1.fetch_add(1, Relaxed);
        self.store.append_run(id, expected, changes)
    }

    fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>> {
        self.store.load_run(id)
    }

    fn entries<'a>(
        &'a self,
        id: &'a str,
        after: Option<u64>,
        limit: usize,
    ) -> StoreFuture<'a, Option<RunLog>> {
        self.store.entries(id, after, limit)
    }

    fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()> {
        self.store.remove_run(id)
    }

    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
        self.store.list_runs(filter)
    }
}

/// The time that only the counting took, in nanoseconds.
static COUNTING: AtomicU64 = AtomicU64::new(0);

/// Requests these calls in each turn, and records what was spent before each.
struct Caller {
    turns: u32,
    calls: u32,
    counts: Arc<(AtomicU64, AtomicU64)>,
    spent: Arc<Mutex<Vec<Spent>>>,
}

impl ChatModel for Caller {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let mut spent = self.spent.lock().expect("no thread panics");
        let turn = spent.len() as u32;
        spent.push(Spent {
            bytes: self.counts.0.load(Relaxed),
            saves: self.counts.1.load(Relaxed),
            time: cpu_time() - Duration::from_nanos(COUNTING.load(Relaxed)),
        });
        let calls: Range<u32> = if turn < self.turns { 0..self.calls } else { 0..0 };
        let calls = calls.map(|call| {
            ToolCall::new(format!("{turn}-{call}"), "work", format!(r#"{{"n":{turn}{call:04}}}"#))
        });
        let reply = AssistantMessage::text("Well.").with_tool_calls(calls.collect::<Vec<_>>());
        Box::pin(async move { Ok(ChatResponse::new(reply)) })
    }
}

/// Works.
#[tool]
fn work(n: u64) -> String {
    format!("{n:0>OUTPUT_BYTES$}")
}

/// Returns what was spent before each request of a run.
async fn run(path: &Path, turns: u32, calls: u32) -> Result<Vec<Spent>, Box<dyn Error>> {
    let _ = std::fs::remove_file(path);
    let (counts, spent): (Arc<(AtomicU64, AtomicU64)>, Arc<Mutex<_>>) = Default::default();
    let store = Counting { store: SqliteStore::open(path).await?, counts: Arc::clone(&counts) };
    let model = Caller { turns, calls, counts, spent: Arc::clone(&spent) };
    let agent = Agent::builder(model)
        .tools(tools![work])
        .limits(|l| l.max_turns(turns + 1))
        .run_store(store)
        .build()?;
    agent.ask("Go").await?;
    let spent = spent.lock().expect("no thread panics").clone();
    Ok(spent)
}

/// Returns the microseconds in which one row of these bytes is appended in a transaction.
fn by_hand(path: &Path, bytes: f64, saves: f64) -> Result<f64, Box<dyn Error>> {
    let _ = std::fs::remove_file(path);
    let connection = rusqlite::Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.execute_batch(
        "CREATE TABLE log (run TEXT, at INTEGER, entry TEXT, PRIMARY KEY (run, at)) WITHOUT ROWID",
    )?;
    let entry = "x".repeat((bytes / saves) as usize);
    let begun = cpu_time();
    for at in 0..300 {
        connection.execute("INSERT INTO log VALUES ('run', ?1, ?2)", rusqlite::params![at, entry])?;
    }
    Ok((cpu_time() - begun).as_secs_f64() * 1e6 / 300.0 * saves)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("stored-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let (path, other): (PathBuf, PathBuf) = (directory.join("runs.db"), directory.join("log.db"));
    let mut failures = Vec::new();

    println!("a turn with one call: bytes, saves, microseconds of CPU time; the same bytes by hand");
    let spent = run(&path, TURNS, 1).await?;
    let turns = AFTER.map(|turn| spent[turn as usize + 10].since(spent[turn as usize], 10));
    for (turn, [bytes, saves, micros]) in AFTER.iter().zip(turns) {
        println!(
            "{turn:>5} {bytes:>10.0} {saves:>5.1} {micros:>9.0} {:>9.0}",
            by_hand(&other, bytes, saves)?
        );
    }
    let [first, .., last] = turns;
    if last[0] > first[0] * BYTES_BOUND || last[1] > SAVES_BOUND || last[2] > first[2] * TIME_BOUND {
        failures.push("a late turn costs more than an early one");
    }

    println!(
        "a reply with many calls, of each call: bytes, saves, microseconds of CPU time; the same bytes by hand"
    );
    let mut replies = Vec::new();
    for calls in PARALLEL {
        let spent = run(&path, 1, calls).await?;
        let [bytes, saves, micros] = spent[1].since(spent[0], calls);
        println!(
            "{calls:>5} {bytes:>10.0} {saves:>5.1} {micros:>9.0} {:>9.0}",
            by_hand(&other, bytes, saves)?
        );
        replies.push(bytes);
    }
    if replies[1] > replies[0] * BYTES_BOUND {
        failures.push("the bytes of a reply are not linear in the number of its calls");
    }
    std::fs::remove_dir_all(&directory)?;
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ").into()) }
}
