//! Two processes on one database that are killed again and again, beside restarts of the server: the processes are this test binary.

mod support;

use std::collections::BTreeMap;
use std::env;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tool_core::tool::IdempotencyKey;
use tool_core::{Agent, ChatMemory, tool, tools};
use tool_postgres::PostgresStore;
use tool_postgres::tokio_postgres::types::Type;
use tool_postgres::tokio_postgres::{self, NoTls};

use crate::support::{Clerk, end_all, restart, variable};

/// The environment variable with the schema of a process that is killed.
const SCHEMA: &str = "TOOL_POSTGRES_SCHEMA";

/// The environment variable with the URL of its database.
const URL_NAME: &str = "TOOL_POSTGRES_URL";

const KILLS: usize = 200;
/// A kill in so many is a restart of the server as well.
const KILLS_PER_RESTART: usize = 4;

/// Writes down that it was executed.
#[tool("Charges the customer", at_most_once)]
async fn charge(#[inject] key: &IdempotencyKey) -> Result<&'static str, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(&variable("POSTGRES_URL"), NoTls).await?;
    let connection = tokio::spawn(connection);
    let key = key.to_string();
    client.execute_typed("INSERT INTO public.effects (key) VALUES ($1)", &[(&key, Type::TEXT)]).await?;
    drop(client);
    let _ = connection.await;
    Ok("charged")
}

fn agent(store: PostgresStore) -> Agent {
    let agent = Agent::builder(Clerk).tools(tools![charge]).memory(ChatMemory::new(store.clone()));
    let agent = agent.run_store(store).keep_finished(Duration::from_secs(3_600));
    agent.run_lease(Duration::from_secs(1)).build().unwrap()
}

/// Asks questions until it is killed.
#[tokio::test]
#[ignore = "the process that is killed"]
async fn one_process() {
    let Ok(schema) = env::var(SCHEMA) else { return };
    let store = loop {
        if let Ok(store) = PostgresStore::connect(variable(URL_NAME)).schema(&*schema).await {
            break store;
        }
    };
    let agent = agent(store);
    let _recovery = agent.recover().start();
    loop {
        let asking = (0..4).map(|_| {
            let question = format!("{:x}", fastrand::u64(..));
            let conversation = format!("user-{}", fastrand::u8(..16));
            agent.ask(question).conversation(conversation).into_future()
        });
        // Questions whose conversation has another run, or whose server restarts, fail.
        let _ = futures_util::future::join_all(asking).await;
    }
}

fn spawn(schema: &str, number: usize) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["one_process", "--exact", "--ignored"]).env(SCHEMA, schema);
    // One is behind the pooler.
    command.env(URL_NAME, variable(["POSTGRES_URL", "POSTGRES_BOUNCER_URL"][number]));
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn killed_processes_leave_every_run_right() {
    let schema = format!("kills {}", std::process::id());
    let store = PostgresStore::connect(variable("POSTGRES_URL")).schema(&*schema).migrate().await.unwrap();
    let (client, connection) = tokio_postgres::connect(&variable("POSTGRES_URL"), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
        .batch_execute("DROP TABLE IF EXISTS public.effects; CREATE TABLE public.effects (key text NOT NULL)")
        .await
        .unwrap();
    let ending = schema.clone();
    let killing = tokio::task::spawn_blocking(move || {
        let mut processes = [0, 1].map(|number| spawn(&ending, number));
        for kill in 0..KILLS {
            // The point at which a process is killed is what this test varies.
            std::thread::sleep(Duration::from_millis(fastrand::u64(20..200)));
            if kill % KILLS_PER_RESTART == 0 {
                restart("immediate");
            }
            let process = &mut processes[kill % 2];
            process.kill().unwrap();
            process.wait().unwrap();
            *process = spawn(&ending, kill % 2);
        }
        for mut process in processes {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    });
    killing.await.unwrap();
    let calm = agent(store);
    let listed = end_all(&calm).await;
    let (client, connection) = tokio_postgres::connect(&variable("POSTGRES_URL"), NoTls).await.unwrap();
    tokio::spawn(connection);
    let twice = "SELECT key FROM public.effects GROUP BY key HAVING count(*) > 1";
    assert!(client.query_typed(twice, &[]).await.unwrap().is_empty(), "a call had its effect twice");
    // The messages of each run are in its conversation, once and together, and nothing else is. A question can have gone on with a run that was
    // interrupted.
    let mut lengths = BTreeMap::new();
    for run in &listed {
        let run = calm.stored_run(&run.id).await.unwrap().unwrap().run;
        assert!(run.is_done());
        let conversation = run.conversation().unwrap().clone();
        let stored = calm.memory().unwrap().messages(conversation.clone()).await.unwrap();
        let added = run.new_messages();
        let found = stored.windows(added.len()).filter(|messages| *messages == added).count();
        assert_eq!(found, 1, "a run is {found} times in its conversation");
        let (expected, _) = lengths.entry(conversation.to_string()).or_insert((0, stored.len()));
        *expected += added.len();
    }
    assert!(lengths.values().all(|(expected, stored)| expected == stored), "{lengths:?}");
    let runs = listed.len();
    println!("{runs} runs after {KILLS} kills");
    assert!(runs > KILLS / 4, "the processes hardly worked: {runs} runs");
}
