//! The store with a real server: see the script `run`.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tool_core::memory::{Budget, RunFilter, RunStatus};
use tool_core::model::ConversationId;
use tool_core::run::Run;
use tool_core::signatures::Timestamp;
use tool_core::store::{
    BudgetRemainder, BudgetStore, ChatStore, CompactionSummary, OutputStore, RunStore, UnreadableRun,
};
use tool_core::testing::{ScriptedModel, check_run_store};
use tool_core::{Agent, ChatMemory, Message, tool, tools};
use tool_postgres::tokio_postgres::{self, NoTls};
use tool_postgres::{PostgresError, PostgresErrorKind, PostgresStore};

fn url() -> String {
    env::var("POSTGRES_URL").expect("the script `run` sets POSTGRES_URL")
}

fn bouncer() -> String {
    env::var("POSTGRES_BOUNCER_URL").expect("the script `run` sets POSTGRES_BOUNCER_URL")
}

/// Returns the name of a schema that no other test uses.
fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test \"{}\" {}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

async fn store_at(url: String) -> PostgresStore {
    PostgresStore::connect(url).schema(unique()).migrate().await.unwrap()
}

async fn store() -> PostgresStore {
    store_at(url()).await
}

async fn client() -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(&url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn the_contract_of_run_stores_holds() {
    check_run_store(&store().await).await.unwrap();
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn the_contract_of_run_stores_holds_behind_a_pooler_of_transactions() {
    check_run_store(&store_at(bouncer()).await).await.unwrap();
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn the_contract_of_run_stores_holds_with_connections_of_the_program() {
    let schema = unique();
    PostgresStore::connect(url()).schema(&*schema).migrate().await.unwrap();
    let store =
        PostgresStore::from_clients(|| async { Ok::<_, tokio_postgres::Error>(Box::new(client().await)) });
    check_run_store(&store.schema(schema).await.unwrap()).await.unwrap();
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn tables_are_created_once_and_checked() {
    let schema = unique();
    let connect = || PostgresStore::connect(url()).schema(&*schema);
    let missing = connect().await.unwrap_err();
    assert_eq!(missing.kind(), PostgresErrorKind::Tables);
    assert!(missing.to_string().ends_with("has no tables of this store; call `migrate` once"), "{missing}");
    let migrations: Vec<_> = (0..20).map(|_| tokio::spawn(connect().migrate())).collect();
    for migration in migrations {
        migration.await.unwrap().unwrap();
    }
    connect().await.unwrap();
    let quoted = schema.replace('"', "\"\"");
    client().await.batch_execute(&format!("UPDATE \"{quoted}\".tool_tables SET version = 9")).await.unwrap();
    for refused in [connect().await.unwrap_err(), connect().migrate().await.unwrap_err()] {
        assert_eq!(refused.kind(), PostgresErrorKind::Tables);
        let expected = "the tables have version 9, but this program supports version 1; update the program";
        assert_eq!(refused.to_string(), expected);
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn errors_name_no_password() {
    let wrong = ["postgres://ada:s3cret@127.0.0.1:1/desk", "postgres://ada:s3cret@[half", "s3cret"];
    for url in wrong {
        let error = PostgresStore::connect(url).await.unwrap_err();
        let texts = [error.to_string(), format!("{error:?}"), format!("{:?}", PostgresStore::connect(url))];
        assert!(texts.iter().all(|text| !text.contains("s3cret")), "{texts:?}");
        assert_eq!(error.was_done(), Some(false));
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_database_or_a_user_that_is_not_there_is_named() {
    let url = url();
    let (server, _) = url.rsplit_once('/').unwrap();
    for wrong in [format!("{server}/nothing"), url.replace("postgres@", "nobody@")] {
        let error = PostgresStore::connect(wrong).await.unwrap_err();
        assert_eq!((error.kind(), error.was_done()), (PostgresErrorKind::Connection, Some(false)), "{error}");
        assert!(
            error.to_string().starts_with("the server refuses the user, its password or the database"),
            "{error}"
        );
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn conversations_keep_their_bytes_and_their_order() {
    let store = store().await;
    let id = ConversationId::new("user-7");
    assert_eq!(store.load(&id).await.unwrap(), []);
    let first = [Message::user("1e2 \u{0} \u{1F600}"), Message::assistant("{\"b\": 1, \"a\": 1, \"b\": 2}")];
    store.append(&id, &first).await.unwrap();
    store.append(&id, &[]).await.unwrap();
    store.append(&id, &[Message::user("Two")]).await.unwrap();
    let read = store.load(&id).await.unwrap();
    assert_eq!(read, [&first[..], &[Message::user("Two")]].concat());
    let summary: CompactionSummary =
        serde_json::from_str(r#"{"messages": 2, "text": "a\u0000b", "details": "{}"}"#).unwrap();
    store.store_summary(&id, &summary).await.unwrap();
    assert_eq!(store.load_summary(&id).await.unwrap(), Some(summary));
    assert_eq!(store.conversations().await.unwrap(), std::slice::from_ref(&id));
    store.replace(&id, &[Message::user("Three")]).await.unwrap();
    assert_eq!(store.load(&id).await.unwrap(), [Message::user("Three")]);
    assert_eq!(store.load_summary(&id).await.unwrap(), None);
    store.clear(&id).await.unwrap();
    assert_eq!(store.conversations().await.unwrap(), []);
    let long = ConversationId::new("x".repeat(1_001));
    let refused = store.append(&long, &[Message::user("One")]).await.unwrap_err();
    assert!(refused.to_string().contains("more than 1000 bytes"), "{refused}");
}

/// What was read stays the beginning of what is read later.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs PostgreSQL"]
async fn appends_of_many_processes_do_not_interleave() {
    let schema = unique();
    PostgresStore::connect(url()).schema(&*schema).migrate().await.unwrap();
    let id = ConversationId::new("shared");
    let mut writers = Vec::new();
    for writer in 0..16 {
        let store = PostgresStore::connect(url()).schema(&*schema).max_connections(2).await.unwrap();
        let id = id.clone();
        writers.push(tokio::spawn(async move {
            for turn in 0..10 {
                let pair = [
                    Message::user(format!("{writer}/{turn}")),
                    Message::assistant(format!("{writer}/{turn}")),
                ];
                store.append(&id, &pair).await.unwrap();
            }
        }));
    }
    let store = PostgresStore::connect(url()).schema(&*schema).await.unwrap();
    let mut before = Vec::new();
    while before.len() < 320 {
        let now = store.load(&id).await.unwrap();
        assert!(now.starts_with(&before), "the beginning has changed");
        assert!(now.chunks(2).all(|pair| pair.len() == 2 && pair[0].text() == pair[1].text()));
        before = now;
    }
    for writer in writers {
        writer.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs PostgreSQL"]
async fn an_operation_whose_future_is_dropped_is_seen_by_later_ones() {
    let store = store().await;
    let dropping = tokio::spawn(async move {
        let id = ConversationId::new("dropped");
        for _ in 0..100 {
            let messages = [Message::user("One")];
            // Begun, and dropped before the database has answered.
            assert!(store.append(&id, &messages).now_or_never().is_none());
            assert_eq!(store.load(&id).await.unwrap().len(), 1);
            assert!(store.append(&id, &messages).now_or_never().is_none());
            assert_eq!(store.conversations().await.unwrap().len(), 1);
            assert_eq!(store.load(&id).await.unwrap().len(), 2);
            assert!(store.append(&id, &messages).now_or_never().is_none());
            store.clear(&id).await.unwrap();
            assert_eq!(store.load(&id).await.unwrap(), []);
        }
    });
    dropping.await.unwrap();
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn outputs_are_stored_and_removed() {
    let store = store().await;
    let run = "run-7".to_owned().into();
    assert_eq!(store.load_output(&run, "call").await.unwrap(), None);
    store.store_output(&run, "call", "one").await.unwrap();
    store.store_output(&run, "call", "two\u{0}").await.unwrap();
    assert_eq!(store.load_output(&run, "call").await.unwrap().as_deref(), Some("two\u{0}"));
    store.remove_outputs(&run).await.unwrap();
    assert_eq!(store.load_output(&run, "call").await.unwrap(), None);
}

#[tool("Pays a bill", needs_approval, at_most_once)]
fn pay() -> &'static str {
    "paid"
}

/// A run that waits is decided by another program and goes on there.
#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_run_that_waits_goes_on_in_another_process() {
    let schema = unique();
    PostgresStore::connect(url()).schema(&*schema).migrate().await.unwrap();
    let agent = async |model| {
        let store = PostgresStore::connect(url()).schema(&*schema).await.unwrap();
        let agent = Agent::builder(model).tools(tools![pay]).memory(ChatMemory::new(store.clone()));
        agent.run_store(store).keep_finished(Duration::from_secs(60)).build().unwrap()
    };
    let one = agent(ScriptedModel::new().calls("pay", "{}")).await;
    one.ask("Pay").conversation("user-7").await.unwrap_err();
    let other = agent(ScriptedModel::new().says("Paid.")).await;
    let listed = other.list_runs(&RunFilter::new().status(RunStatus::Waiting)).await.unwrap();
    let run = other.stored_run(&listed[0].id).await.unwrap().unwrap().run;
    let decision = tool_core::run::Decision::approve().by("ada");
    let decided = other.decide(run.id(), &run.waits()[0].id, decision).await.unwrap();
    assert_eq!(decided.resume().unwrap().await.unwrap().text(), "Paid.");
    let finished = one.list_runs(&RunFilter::new().conversation("user-7")).await.unwrap();
    assert_eq!(finished[0].status, RunStatus::Finished);
    assert_eq!(one.memory().unwrap().messages("user-7").await.unwrap().len(), 4);
}

/// What is left is granted once, and what is not spent comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs PostgreSQL"]
async fn a_budget_of_many_processes_is_exact() {
    let schema = unique();
    PostgresStore::connect(url()).schema(&*schema).migrate().await.unwrap();
    let store = async || PostgresStore::connect(url()).schema(&*schema).max_connections(2).await.unwrap();
    let day = Duration::from_secs(24 * 3_600);
    let budget = |store: &PostgresStore| Budget::tokens(store.clone(), 2_000, day).key("ada");
    let mut spending = Vec::new();
    for process in 0..16 {
        let store = store().await;
        let budget = budget(&store);
        spending.push(tokio::spawn(async move {
            let mut spent = 0;
            for request in 0..10 {
                let period = budget.period_at(Timestamp::now());
                let Some(reserved) = store.reserve(&period, 5, 20).await.unwrap() else { break };
                let used = reserved.amount.min(process + request);
                store.settle(&reserved, used, period.now).await.unwrap();
                store.settle(&reserved, 0, period.now).await.unwrap();
                spent += used;
            }
            spent
        }));
    }
    let mut spent = 0;
    for process in spending {
        spent += process.await.unwrap();
    }
    let store = store().await;
    let budget = budget(&store);
    assert!(spent < 2_000);
    assert_eq!(budget.left().await.unwrap(), 2_000 - spent);
    let period = budget.period_at(Timestamp::now());
    let BudgetRemainder::Reserved(rest) = store.reserve_remainder(&period, 1).await.unwrap() else {
        panic!()
    };
    assert_eq!(rest.amount, 2_000 - spent);
    assert_eq!(store.reserve_remainder(&period, 1).await.unwrap(), BudgetRemainder::InUse);
    assert_eq!(store.reserve(&period, 1, 1).await.unwrap(), None);
    store.settle(&rest, 0, period.now).await.unwrap();
    assert_eq!(store.spent(&period).await.unwrap(), spent);
    // Of what is left, each of many gets a share, and together they get all of it.
    let all = 2_000 - spent;
    let shares = (0..200).map(|_| store.reserve(&period, 1, 7));
    let shares = futures_util::future::join_all(shares).await.into_iter().filter_map(Result::unwrap);
    assert_eq!(shares.map(|share| share.amount).sum::<u64>(), all.min(200 * 7));
    let spent = spent + all.min(200 * 7);
    // The clock of this machine is wrong by two days: the periods are the database's.
    let wrong = budget.period_at(Timestamp::now().after(2 * day));
    assert_eq!(store.spent(&wrong).await.unwrap(), spent);
}

/// A run that is added while its id is removed is there as a whole or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs PostgreSQL"]
async fn a_run_that_is_added_while_its_id_is_removed_is_whole() {
    let schema = unique();
    let one = PostgresStore::connect(url()).schema(&*schema).migrate().await.unwrap();
    let other = PostgresStore::connect(url()).schema(&*schema).await.unwrap();
    for round in 0..100 {
        let id = format!("order-{round}");
        let mut run = Run::new([Message::user("Hello")]);
        let (saved, removed) = tokio::join!(one.save_run(&id, &mut run), other.remove_run(&id));
        saved.unwrap();
        removed.unwrap();
        let loaded = one.load_run(&id).await.unwrap();
        assert!(loaded.is_none_or(|loaded| loaded.messages().len() == 1));
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn lists_are_in_order_and_name_what_cannot_be_read() {
    let schema = unique();
    let store = PostgresStore::connect(url()).schema(&*schema).migrate().await.unwrap();
    let mut ids = ["a\0", "aA", "a\\", "a", "\u{1F600}"].map(str::to_owned);
    for id in &ids {
        store.append(&ConversationId::new(id.as_str()), &[Message::user("One")]).await.unwrap();
        store.save_run(id, &mut Run::new([Message::user("Hello")])).await.unwrap();
    }
    ids.sort();
    let listed = store.list_runs(&RunFilter::new()).await.unwrap().into_iter().map(|run| run.id);
    assert_eq!(listed.collect::<Vec<_>>(), ids);
    let conversations = store.conversations().await.unwrap();
    assert_eq!(conversations.iter().map(|id| id.as_str()).collect::<Vec<_>>(), ids);
    assert_eq!(store.list_runs(&RunFilter::new().min_age(Duration::MAX)).await.unwrap().len(), 0);
    let quoted = schema.replace('"', "\"\"");
    client().await.batch_execute(&format!("UPDATE \"{quoted}\".runs SET summary = '{{'")).await.unwrap();
    assert_eq!(store.list_runs(&RunFilter::new()).await.unwrap().len(), 0);
    let unreadable = store.unreadable_runs().await.unwrap().into_iter().map(|run| run.id);
    assert_eq!(unreadable.collect::<Vec<_>>(), ids);
    let error = store.list_runs(&RunFilter::new().id("aA")).await.unwrap_err();
    assert_eq!(error.downcast_ref::<UnreadableRun>().unwrap().id, "aA");
}

/// The program lends the same connection to all operations, as a pool of one would.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn an_operation_that_fails_leaves_the_connection_of_the_program_outside_of_a_transaction() {
    let schema = unique();
    PostgresStore::connect(url()).schema(&*schema).migrate().await.unwrap();
    let pool = Arc::new(tokio::sync::Mutex::new(client().await));
    let lend = move || {
        let lent = Arc::clone(&pool).lock_owned();
        async { Ok::<_, tokio_postgres::Error>(lent.await) }
    };
    let store = PostgresStore::from_clients(lend).schema(&*schema).await.unwrap();
    let quoted = schema.replace('"', "\"\"");
    let locking = client().await;
    locking.batch_execute(&format!("BEGIN; LOCK TABLE \"{quoted}\".conversations")).await.unwrap();
    let id = ConversationId::new("user-7");
    let error = store.append(&id, &[Message::user("One")]).await.unwrap_err();
    let error = error.downcast_ref::<PostgresError>().unwrap();
    assert_eq!((error.kind(), error.was_done()), (PostgresErrorKind::Locked, Some(false)));
    locking.batch_execute("ROLLBACK").await.unwrap();
    store.append(&id, &[Message::user("Two")]).await.unwrap();
    let other = PostgresStore::connect(url()).schema(&*schema).await.unwrap();
    assert_eq!(other.load(&id).await.unwrap(), [Message::user("Two")]);
}

/// The server says so itself; a trigger says it in its place.
#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn what_a_server_refuses_has_a_kind_and_was_not_done() {
    let schema = unique();
    let store = PostgresStore::connect(url()).schema(&*schema).migrate().await.unwrap();
    let quoted = format!("\"{}\"", schema.replace('"', "\"\""));
    let (client, id) = (client().await, ConversationId::new("user-7"));
    store.append(&id, &[Message::user("One")]).await.unwrap();
    for (code, kind) in [
        ("53100", PostgresErrorKind::Full),
        ("53200", PostgresErrorKind::Full),
        ("55P03", PostgresErrorKind::Locked),
        ("57014", PostgresErrorKind::Timeout),
        ("42501", PostgresErrorKind::Server),
        ("XX000", PostgresErrorKind::Server),
    ] {
        let trigger = format!(
            "CREATE OR REPLACE FUNCTION {quoted}.refuse() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN RAISE EXCEPTION 'the secret is 7' USING ERRCODE = '{code}'; END $$;
            CREATE OR REPLACE TRIGGER refuse BEFORE INSERT ON {quoted}.messages EXECUTE FUNCTION {quoted}.refuse()"
        );
        client.batch_execute(&trigger).await.unwrap();
        let error = store.append(&id, &[Message::user("Two")]).await.unwrap_err();
        let error = error.downcast_ref::<PostgresError>().unwrap();
        assert_eq!((error.kind(), error.was_done()), (kind, Some(false)), "{error}");
        assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        assert!(error.to_string().ends_with(&format!("(SQLSTATE {code})")), "{error}");
    }
    client.batch_execute(&format!("DROP TRIGGER refuse ON {quoted}.messages")).await.unwrap();
    store.append(&id, &[Message::user("Three")]).await.unwrap();
    assert_eq!(store.load(&id).await.unwrap(), [Message::user("One"), Message::user("Three")]);
}

/// The only connection is in use, by an operation that waits for a lock.
#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_wait_for_a_connection_has_a_limit() {
    let schema = unique();
    let store = PostgresStore::connect(url()).schema(&*schema).max_connections(1).migrate().await.unwrap();
    let quoted = format!("\"{}\"", schema.replace('"', "\"\""));
    let locking = client().await;
    locking.batch_execute(&format!("BEGIN; LOCK TABLE {quoted}.conversations")).await.unwrap();
    let appending = tokio::spawn({
        let store = store.clone();
        async move { store.append(&ConversationId::new("user-7"), &[Message::user("One")]).await }
    });
    let waits =
        format!("SELECT 1 FROM pg_locks WHERE NOT granted AND relation = '{quoted}.conversations'::regclass");
    while locking.query_typed(&waits, &[]).await.unwrap().is_empty() {}
    // The limit passes at once.
    tokio::time::pause();
    let error = store.load(&ConversationId::new("user-8")).await.unwrap_err();
    tokio::time::resume();
    let error = error.downcast_ref::<PostgresError>().unwrap();
    assert_eq!((error.kind(), error.was_done()), (PostgresErrorKind::NoConnectionFree, Some(false)));
    locking.batch_execute("ROLLBACK").await.unwrap();
    appending.await.unwrap().unwrap();
    assert_eq!(store.load(&ConversationId::new("user-7")).await.unwrap(), [Message::user("One")]);
}

/// With the rights that the guide lists.
#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_role_that_may_create_nothing_suffices() {
    let schema = format!("rights_{}", std::process::id());
    PostgresStore::connect(url()).schema(&*schema).migrate().await.unwrap();
    let guide = include_str!("../docs/guide.md");
    let grants: String = guide.lines().filter(|line| line.starts_with("GRANT ")).collect();
    let role = format!("desk_{}", std::process::id());
    let grants = grants
        .replace("SCHEMA agents", &format!("SCHEMA {schema}"))
        .replace("TO desk;", &format!("TO {role};"));
    client().await.batch_execute(&format!("CREATE ROLE {role} LOGIN; {grants}")).await.unwrap();
    let of_role = url().replace("postgres@", &format!("{role}@"));
    let store = PostgresStore::connect(&*of_role).schema(&*schema).await.unwrap();
    check_run_store(&store).await.unwrap();
    let id = ConversationId::new("user-7");
    store.replace(&id, &[Message::user("One")]).await.unwrap();
    store.store_output(&"run-7".to_owned().into(), "call", "one").await.unwrap();
    let budget = Budget::tokens(store.clone(), 100, Duration::from_secs(60)).key("ada");
    let reserved = store.reserve(&budget.period_at(Timestamp::now()), 1, 10).await.unwrap().unwrap();
    store.settle(&reserved, 1, Timestamp::now()).await.unwrap();
    let refused = PostgresStore::connect(of_role).schema("rights of nobody").migrate().await.unwrap_err();
    assert_eq!((refused.kind(), refused.was_done()), (PostgresErrorKind::Server, Some(false)));
    assert!(refused.to_string().starts_with("the role may not do this"), "{refused}");
}
