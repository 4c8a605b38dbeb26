//! What turns cost: transactions, milliseconds, and bytes, beside an append by hand. `POSTGRES_URL=… cargo bench --package tool-postgres`.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tool_core::memory::{RunFilter, RunStatus};
use tool_core::model::{AssistantMessage, ChatModel, ChatRequest, ChatResponse};
use tool_core::provider::ModelFuture;
use tool_core::store::{ChatStore, RunStore};
use tool_core::{Agent, ChatMemory, Message, SqliteStore, ToolCall, tool, tools};
use tool_postgres::tokio_postgres::types::{ToSql, Type};
use tool_postgres::tokio_postgres::{Client, NoTls};
use tool_postgres::{PostgresStore, tokio_postgres as postgres};

const TURNS: usize = 200;

/// The turns before which the length of the write-ahead log is noted: at the beginning and the end of ten early turns, and of ten late ones.
const COMPARED: [usize; 4] = [10, 20, TURNS - 10, TURNS];

/// Calls the tool in each turn but the last, and notes how long the write-ahead log is.
#[derive(Default)]
struct Clerk {
    client: Option<Client>,
    noted: Arc<Mutex<Vec<i64>>>,
}

impl Clerk {
    async fn note(&self, turn: usize) {
        if let Some(client) = self.client.as_ref().filter(|_| COMPARED.contains(&turn)) {
            let length = wal_length(client).await;
            self.noted.lock().unwrap().push(length);
        }
    }
}

async fn wal_length(client: &Client) -> i64 {
    let sql = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
    client.query_typed(sql, &[]).await.unwrap()[0].get(0)
}

impl ChatModel for Clerk {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let calls = request.messages().iter().filter(|message| matches!(message, Message::Tool(_))).count();
        let reply = match calls < TURNS {
            true => AssistantMessage::default().with_tool_calls([ToolCall::new(
                "c",
                "note",
                format!("{{\"n\": {calls}}}"),
            )]),
            false => AssistantMessage::text("Done."),
        };
        Box::pin(async move {
            self.note(calls).await;
            Ok(ChatResponse::new(reply))
        })
    }
}

#[tool("Notes a number")]
fn note(n: u32) -> String {
    format!("{n}: {}", "x".repeat(1_000))
}

fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).expect("CPU time is not negative")
}

async fn numbers(client: &Client) -> (i64, i64) {
    client.batch_execute("SELECT pg_stat_force_next_flush()").await.unwrap();
    // A connection that is idle reports its statistics within ten seconds.
    tokio::time::sleep(Duration::from_secs(11)).await;
    let sql = "SELECT xact_commit, (pg_current_wal_lsn() - '0/0')::bigint FROM pg_stat_database WHERE datname = current_database()";
    let row = client.query_typed(sql, &[]).await.unwrap().remove(0);
    (row.get(0), row.get(1))
}

fn agent<S>(store: &S, clerk: Clerk) -> Agent
where
    S: ChatStore + RunStore + Clone + 'static,
{
    let agent = Agent::builder(clerk).tools(tools![note]).memory(ChatMemory::new(store.clone()));
    let agent =
        agent.run_store(store.clone()).limits(|l| l.max_turns(TURNS as u32 + 1).max_calls(TURNS as u32 + 1));
    agent.build().unwrap()
}

async fn ask<S>(name: &str, store: &S, clerk: Clerk) -> Duration
where
    S: ChatStore + RunStore + Clone + 'static,
{
    let agent = agent(store, clerk);
    let (started, cpu) = (Instant::now(), cpu_time());
    agent.ask("Go").await.unwrap();
    let (took, cpu) = (started.elapsed(), cpu_time() - cpu);
    let millis = |time: Duration| time.as_secs_f64() * 1_000.0 / TURNS as f64;
    println!("{name}: {:.2} ms per turn, {:.2} ms of CPU time in this process", millis(took), millis(cpu));
    cpu
}

async fn connect(url: &str) -> Client {
    let (client, connection) = postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::main]
async fn main() {
    let url = std::env::var("POSTGRES_URL").expect("POSTGRES_URL names a database");
    let schema = format!("bench {}", std::process::id());
    let store = PostgresStore::connect(&*url).schema(&*schema).migrate().await.unwrap();
    let client = connect(&url).await;

    let sqlite = std::env::temp_dir().join(format!("bench-{}.db", std::process::id()));
    ask("SQLite", &SqliteStore::open(&sqlite).await.unwrap(), Clerk::default()).await;
    let _ = std::fs::remove_file(sqlite);

    let before = numbers(&client).await;
    let clerk = Clerk { client: Some(connect(&url).await), ..Clerk::default() };
    let noted = Arc::clone(&clerk.noted);
    let took = ask("PostgreSQL", &store, clerk).await;
    let after = numbers(&client).await;
    println!("PostgreSQL: {:.2} transactions per turn", (after.0 - before.0) as f64 / TURNS as f64);
    println!("PostgreSQL: {} bytes of the write-ahead log per turn", (after.1 - before.1) / TURNS as i64);

    let noted = noted.lock().unwrap().clone();
    let [early, late] = [noted[1] - noted[0], noted[3] - noted[2]];
    println!(
        "PostgreSQL: {} bytes per early turn, {} per late one: {:.2} times",
        early / 10,
        late / 10,
        late as f64 / early as f64
    );

    // What the loop costs without a store, and the same bytes appended by hand in as many transactions.
    let without = Agent::builder(Clerk::default()).tools(tools![note]);
    let without =
        without.limits(|l| l.max_turns(TURNS as u32 + 1).max_calls(TURNS as u32 + 1)).build().unwrap();
    let cpu = cpu_time();
    without.ask("Go").await.unwrap();
    let of_loop = cpu_time() - cpu;
    client.batch_execute("CREATE TEMPORARY TABLE by_hand (run text, position bigint, entry text, PRIMARY KEY (run, position))").await.unwrap();
    let entry = "x".repeat(1_200);
    let cpu = cpu_time();
    for position in 0..2 * TURNS as i64 {
        let values =
            [(&"run" as &(dyn ToSql + Sync), Type::TEXT), (&position, Type::INT8), (&entry, Type::TEXT)];
        let insert = client.execute_typed("INSERT INTO by_hand VALUES ($1, $2, $3)", &values);
        let (begun, inserted) = tokio::join!(client.batch_execute("BEGIN"), insert);
        begun.and(inserted).unwrap();
        client.batch_execute("COMMIT").await.unwrap();
    }
    let by_hand = cpu_time() - cpu;
    let millis = |time: Duration| time.as_secs_f64() * 1_000.0 / TURNS as f64;
    println!(
        "CPU time per turn: {:.2} ms without a store, {:.2} ms by hand, so that the store costs {:.1} times as much as an append",
        millis(of_loop),
        millis(by_hand),
        took.saturating_sub(of_loop).as_secs_f64() / by_hand.as_secs_f64()
    );

    let many = agent(&store, Clerk::default());
    let started = Instant::now();
    let asked = (0..1_000).map(|_| many.ask("Go").limits(|l| l.max_turns(2)).into_future());
    let _ = futures_util::future::join_all(asked).await;
    println!("1,000 runs of two turns at once: {:.1} s", started.elapsed().as_secs_f64());
    // 10,000 runs that wait, among others.
    client.batch_execute(&format!("SET search_path TO \"{schema}\"")).await.unwrap();
    let keeping =
        Agent::builder(Clerk::default()).run_store(store.clone()).keep_finished(Duration::from_secs(60));
    keeping.build().unwrap().ask("Go").await.unwrap_err();
    client
        .batch_execute(
            "INSERT INTO runs SELECT n, n, revision, replace(summary, id, n::text),
                CASE n % 10 WHEN 0 THEN 'waiting' ELSE 'finished' END, agent, conversation, run_user, updated, finished
            FROM (SELECT * FROM runs LIMIT 1) AS one, generate_series(1, 100000) AS n; ANALYZE runs",
        )
        .await
        .unwrap();
    let (started, waiting) = (Instant::now(), RunFilter::new().status(RunStatus::Waiting));
    let listed = store.list_runs(&waiting).await.unwrap().len();
    println!("a list of {listed} of 100,000 runs: {:.0} ms", started.elapsed().as_secs_f64() * 1_000.0);
    client.batch_execute(&format!("DROP SCHEMA \"{schema}\" CASCADE")).await.unwrap();
}
