//! Connections that are cut and servers that are restarted: what the store says was done was done, and what it says was not was not.

mod support;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};
use tool_core::memory::Budget;
use tool_core::model::ConversationId;
use tool_core::signatures::Timestamp;
use tool_core::store::{BudgetStore, ChatStore};
use tool_core::tool::IdempotencyKey;
use tool_core::{Agent, ChatMemory, Message, tool, tools};
use tool_postgres::tokio_postgres;
use tool_postgres::{PostgresError, PostgresErrorKind, PostgresStore};

use crate::support::{Clerk, Pair, end_all, restart, variable};

fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("chaos {} {}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A proxy that cuts the connection with this number after so many bytes in both directions.
async fn proxy(cut: impl Fn(usize) -> Option<usize> + Send + 'static) -> SocketAddr {
    let socket = Path::new(&variable("POSTGRES_SOCKET")).to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for number in 0.. {
            let Ok((mut client, _)) = listener.accept().await else { break };
            let (socket, mut left) = (socket.clone(), cut(number).unwrap_or(usize::MAX));
            tokio::spawn(async move {
                let Ok(mut server) = UnixStream::connect(socket).await else { return };
                let (mut from_client, mut from_server) = ([0; 256], [0; 256]);
                loop {
                    let (count, is_up) = tokio::select! {
                        read = client.read(&mut from_client) => (read.unwrap_or(0), true),
                        read = server.read(&mut from_server) => (read.unwrap_or(0), false),
                    };
                    let passed = count.min(left);
                    left -= passed;
                    let written = match is_up {
                        true => server.write_all(&from_client[..passed]).await,
                        false => client.write_all(&from_server[..passed]).await,
                    };
                    // Both ends are dropped.
                    if count == 0 || passed < count || written.is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

fn url_at(address: SocketAddr) -> String {
    format!("postgres://postgres@{address}/postgres?sslmode=disable")
}

/// Says whether an operation was done, if that is known.
fn was_done<T>(result: &Result<T, Box<dyn std::error::Error + Send + Sync>>) -> Option<bool> {
    match result {
        Ok(_) => Some(true),
        Err(error) => error.downcast_ref::<PostgresError>().unwrap().was_done(),
    }
}

/// An answer of a connection begins after some 500 bytes, and each operation has some hundred.
const POSITIONS: std::ops::Range<usize> = 300..6_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn what_a_cut_connection_has_done_is_said_rightly() {
    let schema = unique();
    let direct = PostgresStore::connect(variable("POSTGRES_URL")).schema(&*schema).migrate().await.unwrap();
    let budget = Budget::tokens(direct.clone(), 1_000_000, Duration::from_secs(3_600)).key("ada");
    let (mut known, mut unknown) = (0, 0);
    for position in POSITIONS.step_by(37) {
        // The first connection checks the tables.
        let address = proxy(move |number| (number == 0).then_some(position)).await;
        let Ok(store) = PostgresStore::connect(url_at(address)).schema(&*schema).max_connections(1).await
        else {
            continue;
        };
        let id = ConversationId::new(format!("at-{position}"));
        let appended = store.append(&id, &[Message::user("One")]).await;
        let reserved = match &appended {
            Ok(()) => {
                let before = budget.left().await.unwrap();
                let reserved = store.reserve(&budget.period_at(Timestamp::now()), 10, 10).await;
                let took = before - budget.left().await.unwrap();
                Some((reserved, took))
            }
            Err(_) => None,
        };
        // What is still on its way arrives within a moment.
        let found = direct.load(&id).await.unwrap().len();
        match was_done(&appended) {
            Some(true) => assert_eq!(found, 1, "cut at {position}"),
            Some(false) => assert_eq!(found, 0, "cut at {position}"),
            None => assert!(found <= 1, "cut at {position}"),
        }
        let mut count = |is_known: bool| *if is_known { &mut known } else { &mut unknown } += 1;
        count(was_done(&appended).is_some());
        if let Some((reserved, took)) = reserved {
            match was_done(&reserved) {
                Some(true) => assert_eq!(took, 10, "cut at {position}"),
                Some(false) => assert_eq!(took, 0, "cut at {position}"),
                None => assert!(took == 0 || took == 10, "cut at {position}"),
            }
            count(was_done(&reserved).is_some());
        }
    }
    // The operation is looked for on another connection.
    assert!(known > 100 && unknown == 0, "{known} known, {unknown} unknown");
}

type Effects = Arc<Mutex<BTreeMap<String, usize>>>;

#[tool("Charges the customer", at_most_once)]
async fn charge(#[inject] key: &IdempotencyKey, #[inject] effects: &Effects) -> &'static str {
    *effects.lock().unwrap().entry(key.to_string()).or_default() += 1;
    tokio::task::yield_now().await;
    "charged"
}

fn agent(store: &PostgresStore, effects: &Effects) -> Agent {
    let agent = Agent::builder(Clerk).tools(tools![charge]).context(Arc::clone(effects));
    let agent = agent.memory(ChatMemory::new(store.clone())).run_store(store.clone());
    agent.keep_finished(Duration::from_secs(3_600)).run_lease(Duration::from_secs(2)).build().unwrap()
}

/// Asks `count` questions while `disturb` goes on, then lets a recovery end what is left, and checks all.
async fn check_all_right(url: String, disturb: impl AsyncFn(usize)) {
    check_right(variable("POSTGRES_URL"), url, disturb).await;
}

/// The same, with the URL of a server that is not disturbed in the end.
async fn check_right(calm: String, url: String, disturb: impl AsyncFn(usize)) {
    let schema = unique();
    let direct = PostgresStore::connect(calm).schema(&*schema).migrate().await.unwrap();
    let store = loop {
        // A cut can meet the check of the tables.
        if let Ok(store) = PostgresStore::connect(&*url).schema(&*schema).max_connections(4).await {
            break store;
        }
    };
    let effects = Effects::default();
    let disturbed = agent(&store, &effects);
    let recovery = disturbed.recover().start();
    let answered = AtomicUsize::new(0);
    for round in 0..20 {
        let asking = (0..4).map(|number| {
            let ask = disturbed.ask("Charge them").conversation(format!("{round}-{number}"));
            async {
                if let Ok(answer) = ask.await {
                    assert_eq!(answer.text(), "charged");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        tokio::join!(futures_util::future::join_all(asking), disturb(round));
    }
    recovery.stop();
    let calm = agent(&direct, &effects);
    let listed = end_all(&calm).await;
    let effects = effects.lock().unwrap().clone();
    assert!(effects.values().all(|count| *count == 1), "{effects:?}");
    println!(
        "{} answered at once, {} runs, {} charges",
        answered.load(Ordering::Relaxed),
        listed.len(),
        effects.len()
    );
    for run in &listed {
        let run = calm.stored_run(&run.id).await.unwrap().unwrap().run;
        assert!(run.is_done());
        // The conversation has the run, once.
        let conversation = run.conversation().unwrap().clone();
        let stored = calm.memory().unwrap().messages(conversation).await.unwrap();
        assert_eq!(stored.iter().filter(|message| matches!(message, Message::User(_))).count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn runs_end_rightly_whose_connections_are_cut() {
    let cuts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&cuts);
    let address = proxy(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Some(fastrand::usize(1_000..30_000))
    });
    check_all_right(url_at(address.await), async |_| {}).await;
    assert!(cuts.load(Ordering::Relaxed) >= 50, "{cuts:?} connections");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn runs_end_rightly_whose_server_is_restarted() {
    let restarts = async |round: usize| {
        let how = if round.is_multiple_of(2) { "immediate" } else { "fast" };
        tokio::task::spawn_blocking(move || restart(how)).await.unwrap();
    };
    check_all_right(variable("POSTGRES_URL"), restarts).await;
}

/// While a client of the standby waits for it to take writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn runs_end_rightly_whose_server_is_replaced_by_its_standby() {
    let pair = Arc::new(tokio::task::spawn_blocking(Pair::start).await.unwrap());
    let schema = unique();
    PostgresStore::connect(pair.url()).schema(&*schema).migrate().await.unwrap();
    let refused = PostgresStore::connect(pair.url_of_second()).schema(&*schema).await.unwrap_err();
    assert_eq!((refused.kind(), refused.was_done()), (PostgresErrorKind::ReadOnly, Some(false)), "{refused}");
    let second = pair.url_of_second();
    let lend = move || {
        let second = second.clone();
        async move {
            let (client, connection) = tokio_postgres::connect(&second, tokio_postgres::NoTls).await?;
            tokio::spawn(connection);
            Ok::<_, tokio_postgres::Error>(Box::new(client))
        }
    };
    let standby = PostgresStore::from_clients(lend).schema(&*schema).await.unwrap();
    let (conversation, messages) = (ConversationId::new("user-7"), [Message::user("One")]);
    let fail_over = async |round| {
        if round == 10 {
            let pair = Arc::clone(&pair);
            let failing = tokio::task::spawn_blocking(move || pair.fail_over());
            let (stored, failed) = tokio::join!(standby.append(&conversation, &messages), failing);
            stored.unwrap();
            failed.unwrap();
        }
    };
    check_right(pair.url(), pair.url(), fail_over).await;
    assert_eq!(standby.load(&conversation).await.unwrap(), messages);
    tokio::task::spawn_blocking(|| drop(pair)).await.unwrap();
}

/// A pooler says itself that a server has ended the connection, in the middle of statements.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn runs_end_rightly_whose_pooler_loses_its_servers() {
    let terminate = async |_| {
        let (client, connection) =
            tokio_postgres::connect(&variable("POSTGRES_URL"), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        for _ in 0..10 {
            let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
            client.batch_execute(sql).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    check_all_right(variable("POSTGRES_BOUNCER_URL"), terminate).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_server_that_is_not_there_is_an_error_that_names_it() {
    let address = proxy(|_| Some(0)).await;
    let error = PostgresStore::connect(url_at(address)).await.unwrap_err();
    assert_eq!((error.kind(), error.was_done()), (PostgresErrorKind::Connection, Some(false)));
    assert!(error.to_string().starts_with("the database cannot be reached: "), "{error}");
}
