//! The SQLite store.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use futures_util::FutureExt;
use rusqlite::Connection;
use tests::support::sampling::size;
use tests::support::stores::run_ids;
use tool_core::content::{Content, Image, Part};
use tool_core::memory::{MemoryErrorKind, RunFilter, RunStatus};
use tool_core::model::{AssistantMessage, ConversationId, ToolMessage};
use tool_core::provider::JsonText;
use tool_core::run::{Run, UserMessage};
use tool_core::store::{
    ChatStore, DriverId, LeaseRequest, LeaseState, PostOutcome, PostedCommand, RunCommand, RunStore,
};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ChatMemory, Message, RunErrorKind, SqliteStore, ToolCall};

/// A temporary directory of one test.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("memory-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("a.db")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Awaits a future without a runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

fn open(path: &Path) -> SqliteStore {
    block_on(SqliteStore::open(path)).unwrap()
}

fn id() -> ConversationId {
    ConversationId::new("user-7")
}

/// One message of every kind.
fn conversation() -> Vec<Message> {
    let call = ToolCall::new("1", "draw", "{\"big\": 18446744073709551615.10}");
    let mut assistant = AssistantMessage::text("\0 \u{1F600} '\"").with_tool_calls([call]);
    assistant.reasoning = Some("hm".to_owned());
    let parts = [
        Part::from("a"),
        Image::from_bytes("image/png", b"1").into(),
        JsonText::from(serde_json::json!([0.1])).into(),
    ];
    let mut result = ToolMessage::new("1", "draw", Content::from_iter(parts));
    result.is_error = true;
    vec![
        Message::system("s"),
        Message::user("u"),
        Message::Assistant(assistant),
        Message::Tool(result),
        Message::assistant(""),
    ]
}

#[test]
fn contents_persist_without_a_runtime() {
    let directory = Directory::new();
    let store = open(&directory.file());
    block_on(store.append(&id(), &conversation())).unwrap();
    block_on(store.append(&id(), &[Message::user("last")])).unwrap();
    block_on(store.save_run("r", &mut Run::new(conversation()))).unwrap();
    drop(store);
    let store = open(&directory.file());
    let mut expected = conversation();
    expected.push(Message::user("last"));
    assert_eq!(block_on(store.load(&id())).unwrap(), expected);
    assert_eq!(block_on(store.load_run("r")).unwrap().unwrap().messages(), conversation());
    let mode = Connection::open(directory.file()).unwrap();
    let mode: String = mode.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
}

#[test]
fn accepts_any_text_as_an_id() {
    let directory = Directory::new();
    let ids = [
        "",
        "\0",
        "\0a",
        " ",
        "'; DROP TABLE messages; --",
        "A",
        "a",
        "a%",
        "e\u{301}",
        "\u{e9}",
        "\u{1F600}",
    ];
    let store = open(&directory.file());
    for id in ids {
        block_on(store.append(&id.into(), &[Message::user(id)])).unwrap();
    }
    let store = open(&directory.file());
    for id in ids {
        assert_eq!(block_on(store.load(&id.into())).unwrap(), [Message::user(id)], "{id:?}");
    }
    assert_eq!(block_on(store.conversations()).unwrap(), ids.map(ConversationId::from));
    block_on(store.clear(&"a%".into())).unwrap();
    assert_eq!(block_on(store.conversations()).unwrap().len(), ids.len() - 1);
}

#[test]
fn appends_many_messages_at_once() {
    let directory = Directory::new();
    let store = open(&directory.file());
    let many: Vec<_> = (0..20_000).map(|number| Message::user(number.to_string())).collect();
    block_on(store.append(&id(), &many)).unwrap();
    assert_eq!(block_on(store.load(&id())).unwrap(), many);
}

#[test]
fn an_append_that_fails_midway_has_no_effect() {
    let directory = Directory::new();
    let store = open(&directory.file());
    let trigger = "CREATE TRIGGER refuse BEFORE INSERT ON messages WHEN new.message LIKE '%bad%' \
                   BEGIN SELECT RAISE(ABORT, 'refused'); END";
    Connection::open(directory.file()).unwrap().execute_batch(trigger).unwrap();
    let memory = ChatMemory::new(store);
    let error = block_on(memory.commit(&id(), &[Message::user("good"), Message::user("bad")])).unwrap_err();
    assert_eq!(error.to_string(), "could not add messages to the conversation `user-7`: refused");
    assert_eq!(block_on(memory.messages(&id())).unwrap(), []);
    block_on(memory.commit(&id(), &[Message::user("good")])).unwrap();
    assert_eq!(block_on(memory.messages(&id())).unwrap().len(), 1);
}

#[test]
fn an_append_that_is_dropped_is_atomic() {
    let directory = Directory::new();
    let memory = ChatMemory::new(open(&directory.file()));
    let mut stored = 0;
    let rounds = size(80, 200);
    for round in 0..rounds {
        let turn: Vec<_> = (0..20).map(|_| Message::user(round.to_string())).collect();
        let open = block_on(memory.open(&id())).unwrap();
        // A dropped append is visible now or never.
        assert_eq!(open.messages().len() % 20, 0);
        assert!(open.messages().len() >= stored);
        stored = open.messages().len();
        if round % 2 == 0 {
            let _ = open.commit(&turn).now_or_never();
        } else {
            block_on(open.commit(&turn)).unwrap();
        }
    }
    let messages = block_on(memory.messages(&id())).unwrap();
    assert!(messages.len() >= rounds / 2 * 20);
    for turn in messages.chunks(20) {
        assert!(turn.len() == 20 && turn.iter().all(|message| message == &turn[0]));
    }
}

#[test]
fn several_stores_can_use_one_file() {
    const TURNS: usize = 40;
    let directory = Directory::new();
    // All stores are opened concurrently, so that each may try to create the tables.
    thread::scope(|scope| {
        for worker in 0..6 {
            let path = directory.file();
            scope.spawn(move || {
                let memory = ChatMemory::new(open(&path));
                for turn in 0..TURNS {
                    let added = vec![Message::user(format!("{worker} {turn}")); 3];
                    block_on(memory.open(&id())).unwrap();
                    block_on(memory.commit(&id(), &added)).unwrap();
                }
            });
        }
    });
    let messages = block_on(open(&directory.file()).load(&id())).unwrap();
    assert_eq!(messages.len(), 6 * TURNS * 3);
    let mut next = [0; 6];
    for turn in messages.chunks(3) {
        assert!(turn.iter().all(|message| message == &turn[0]));
        let text = turn[0].text();
        let (worker, number) = text.split_once(' ').unwrap();
        let next = &mut next[worker.parse::<usize>().unwrap()];
        assert_eq!(number, next.to_string());
        *next += 1;
    }
}

#[test]
fn several_stores_can_create_one_file() {
    for _ in 0..20 {
        let directory = Directory::new();
        let barrier = Barrier::new(6);
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    barrier.wait();
                    block_on(open(&directory.file()).append(&id(), &[Message::user("a")])).unwrap();
                });
            }
        });
        assert_eq!(block_on(open(&directory.file()).load(&id())).unwrap().len(), 6);
    }
}

#[test]
fn reports_a_corrupt_row_without_its_content() {
    let directory = Directory::new();
    let memory = ChatMemory::new(open(&directory.file()));
    let table = [
        ("'{\"role\": \"user\"'", "line 1, column 15"),
        ("''", "line 1, column 0"),
        ("'{\"role\": \"spy\", \"message\": \"secret\"}'", "line 1, column 14"),
        ("'{\"role\": \"assistant\", \"message\": \"secret\"}'", "line 1, column 41"),
        ("x'00ff'", "it is not text"),
        ("CAST(x'ff' AS TEXT)", "it is not text"),
    ];
    for (damage, location) in table {
        block_on(memory.clear(&id())).unwrap();
        block_on(memory.commit(&id(), &[Message::user("a"), Message::user("secret")])).unwrap();
        let file = Connection::open(directory.file()).unwrap();
        file.execute(&format!("UPDATE messages SET message = {damage} WHERE id = 2"), []).unwrap();
        let error = block_on(memory.open(&id())).unwrap_err();
        assert_eq!(error.kind(), MemoryErrorKind::Load);
        assert_eq!(
            error.to_string(),
            format!(
                "could not load the conversation `user-7`: row 2 of the table `messages` is corrupt or was written \
                 by another version ({location}); delete the row or clear the conversation"
            )
        );
        // The way out that the error suggests.
        file.execute("DELETE FROM messages WHERE id = 2", []).unwrap();
        assert_eq!(block_on(memory.open(&id())).unwrap().messages().len(), 1);
    }
}

#[test]
fn reports_a_corrupt_run() {
    let directory = Directory::new();
    let store = open(&directory.file());
    block_on(store.save_run("a\nb", &mut Run::new([Message::user("secret")]))).unwrap();
    let file = Connection::open(directory.file()).unwrap();
    file.execute("UPDATE run_log SET entry = '{}'", []).unwrap();
    let error = block_on(store.load_run("a\nb")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the state of the run `a\\nb` is corrupt or was written by another version (line 1, column 2); remove the run"
    );
    // The way out that the error suggests.
    block_on(store.remove_run("a\nb")).unwrap();
    block_on(store.save_run("a\nb", &mut Run::new([Message::user("a")]))).unwrap();
    let is_recent = "SELECT abs(updated - unixepoch()) < 60 FROM runs";
    assert!(file.query_row(is_recent, [], |row| row.get::<_, bool>(0)).unwrap());
}

#[test]
fn a_corrupt_run_does_not_hide_the_others() {
    let directory = Directory::new();
    let store = open(&directory.file());
    for id in ["a", "b", "c"] {
        block_on(store.save_run(id, &mut Run::new([Message::user(id)]))).unwrap();
    }
    let file = Connection::open(directory.file()).unwrap();
    file.execute("UPDATE run_log SET entry = '{}' WHERE run = 'b'", []).unwrap();
    let agent = Agent::builder(ScriptedModel::new()).run_store(store).build().unwrap();
    let load = |id: &str| block_on(agent.stored_run(id));
    for id in ["a", "c"] {
        assert_eq!(load(id).unwrap().unwrap().run.messages()[0].text(), id);
    }
    let error = load("b").unwrap_err();
    assert_eq!(
        (error.kind(), error.run(), error.conversation()),
        (MemoryErrorKind::LoadRun, Some("b"), None)
    );
    let expected = "could not load the run `b`: the state of the run `b` is corrupt or was written by another version \
                    (line 1, column 2); remove the run";
    assert_eq!(error.to_string(), expected);
    // A driver of another version reads it.
    block_on(agent.cancel("b")).unwrap();
    assert!(block_on(agent.say("b", "Hello?")).is_err());
    let posted = block_on(agent.run_store().unwrap().posted("b")).unwrap();
    assert_eq!(posted.into_iter().map(|posted| posted.command).collect::<Vec<_>>(), [RunCommand::Cancel]);
    file.execute("DROP TABLE runs", []).unwrap();
    let error = block_on(agent.list_runs(&RunFilter::new())).unwrap_err();
    assert_eq!((error.kind(), error.run()), (MemoryErrorKind::StoredRuns, None));
    assert!(error.to_string().starts_with("could not list the stored runs: "), "{error}");
}

/// A newer version of the program has written it, or the file is damaged.
#[test]
fn a_summary_that_cannot_be_read_hides_no_other_run() {
    let table = [
        (r#"replace(summary, '"failed"', '"hibernating"')"#, "line 1, column"),
        ("'{'", "line 1, column 1"),
        ("x'00ff'", "it is not text"),
    ];
    for (damage, location) in table {
        let directory = Directory::new();
        let store = open(&directory.file());
        let model = ScriptedModel::new().fails("down").fails("down").fails("down").says("b").says("c");
        let agent = Agent::builder(model).name("desk").memory(ChatMemory::new(store.clone()));
        let agent = agent.run_store(Arc::new(store.clone())).build().unwrap();
        let ids = ["user-1", "user-2", "user-3"].map(|conversation| {
            let ask = agent.ask("Hello").conversation(conversation);
            block_on(ask.into_future()).unwrap_err().run().id().to_string()
        });
        let file = Connection::open(directory.file()).unwrap();
        let update = format!("UPDATE runs SET summary = {damage} WHERE id = ?1");
        assert_eq!(file.execute(&update, [&ids[0]]).unwrap(), 1);

        let mut readable = ids[1..].to_vec();
        readable.sort();
        let listed = |filter: RunFilter| {
            let listed = block_on(agent.list_runs(&filter)).unwrap().into_iter();
            listed.map(|run| run.id).collect::<Vec<_>>()
        };
        assert_eq!(listed(RunFilter::new()), readable);
        assert_eq!(listed(RunFilter::new().status(RunStatus::Failed)), readable);
        assert_eq!(listed(RunFilter::new().conversation("user-2")), [&*ids[1]]);

        // It is reported, and nothing happens beside it.
        let reason =
            format!("the summary of the run `{}` is corrupt or was written by another version", ids[0]);
        let other =
            Agent::builder(ScriptedModel::new()).name("other").run_store(store.clone()).build().unwrap();
        assert!(block_on(other.unreadable_runs()).unwrap().is_empty(), "it is of another agent");
        let unreadable = block_on(agent.unreadable_runs()).unwrap();
        let [run] = &*unreadable else { panic!("{unreadable:?}") };
        assert_eq!((&*run.id, run.agent.as_deref()), (&*ids[0], Some("desk")));
        let error = block_on(agent.stored_run(&ids[0])).unwrap_err();
        assert_eq!((error.kind(), error.run()), (MemoryErrorKind::LoadRun, Some(&*ids[0])));
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("could not load the run `{}`: {reason} ({location}", ids[0])),
            "{text}"
        );
        assert!(text.ends_with("); update the program, or remove the run"), "{text}");
        let mut all = ids.to_vec();
        all.sort();
        assert_eq!(block_on(run_ids(&store)), all);
        let refused = block_on(agent.ask("Hello?").conversation("user-1").into_future()).unwrap_err();
        let is_refused =
            matches!(refused.kind(), RunErrorKind::ConversationWaits { run, .. } if *run == ids[0]);
        assert!(is_refused, "{refused}");

        assert_eq!(block_on(agent.recover().once()).unwrap(), 2);
        assert_eq!(block_on(run_ids(&store)), [&*ids[0]]);
        // The ways out.
        if damage.starts_with("replace") {
            file.execute("UPDATE runs SET status = 'finished'", []).unwrap();
            assert_eq!(listed(RunFilter::new().conversation("user-1")), [""; 0]);
        }
        block_on(store.remove_run(&ids[0])).unwrap();
        assert!(block_on(agent.unreadable_runs()).unwrap().is_empty());
    }
}

#[test]
fn a_list_of_runs_reads_no_state() {
    let directory = Directory::new();
    let agent =
        Agent::builder(ScriptedModel::new().fails("down").fails("down")).memory(ChatMemory::in_memory());
    let agent = agent.run_store(open(&directory.file())).build().unwrap();
    for conversation in ["user-1", "user-2"] {
        block_on(agent.ask("Hello").conversation(conversation).into_future()).unwrap_err();
    }
    let file = Connection::open(directory.file()).unwrap();
    file.execute_batch("UPDATE run_log SET entry = x'00'; UPDATE run_parts SET part = x'00'").unwrap();
    for listed in block_on(agent.list_runs(&RunFilter::new())).unwrap() {
        block_on(agent.stored_run(listed.id)).unwrap_err();
    }
    let ids = |filter: RunFilter| {
        let runs = block_on(agent.list_runs(&filter)).unwrap();
        runs.into_iter().map(|run| (run.conversation.unwrap(), run.status)).collect::<Vec<_>>()
    };
    let failed = |conversation: &str| (conversation.into(), RunStatus::Failed);
    let mut all = ids(RunFilter::new());
    all.sort_by(|one, other| one.0.as_str().cmp(other.0.as_str()));
    assert_eq!(all, [failed("user-1"), failed("user-2")]);
    assert_eq!(ids(RunFilter::new().conversation("user-2").status(RunStatus::Failed)), [failed("user-2")]);
    assert_eq!(ids(RunFilter::new().status(RunStatus::Waiting)), []);
    assert_eq!(ids(RunFilter::new().status(RunStatus::RunningElsewhere)), []);
}

/// It was taken by a clock that was ahead. One that steps back a little ends no lease.
#[tokio::test]
async fn a_lease_that_ends_later_than_twice_its_duration_from_now_is_none() {
    let directory = Directory::new();
    let store = SqliteStore::open(directory.file()).await.unwrap();
    let agent = Agent::builder(ScriptedModel::new().fails("down").says("Hello.")).run_store(store.clone());
    let agent = agent.build().unwrap();
    let id = agent.ask("Hello").await.unwrap_err().run().id().to_string();
    let [first, second] = [DriverId::unique(), DriverId::unique()];
    // The duration, how much later it ends than a clock that is right lets it, and whether it is held.
    let table = [
        (60, 0, true),
        (60, 1, true),
        (60, 60, true),
        (60, 120, false),
        (60, 86_400, false),
        (172_800, -86_400, true),
    ];
    for (duration, later, is_held) in table {
        let take = LeaseRequest::Take(Duration::from_secs(duration));
        assert_eq!(store.lease(&id, &first, take).await.unwrap(), LeaseState::Held);
        let file = Connection::open(directory.file()).unwrap();
        let moved = file.execute("UPDATE leases SET expires = expires + ?1", [later * 1_000]).unwrap();
        assert_eq!(moved, 1);
        let state = if is_held { LeaseState::HeldElsewhere } else { LeaseState::Free };
        let what = format!("{duration} s, {later} s later");
        assert_eq!(store.lease(&id, &second, LeaseRequest::Check).await.unwrap(), state, "{what}");
        let listed = store.list_runs(&RunFilter::new().id(&*id)).await.unwrap().remove(0);
        assert_eq!(listed.is_leased, is_held, "{what}");
        let taken = if is_held { LeaseState::HeldElsewhere } else { LeaseState::Held };
        assert_eq!(store.lease(&id, &second, take).await.unwrap(), taken, "{what}");
        for driver in [&first, &second] {
            let _ = store.lease(&id, driver, LeaseRequest::Release).await.unwrap();
        }
    }
    let take = LeaseRequest::Take(Duration::from_secs(60));
    assert_eq!(store.lease(&id, &first, take).await.unwrap(), LeaseState::Held);
    assert_eq!(agent.recover().once().await.unwrap(), 0);
    let file = Connection::open(directory.file()).unwrap();
    file.execute("UPDATE leases SET expires = expires + 86400000", []).unwrap();
    assert_eq!(agent.recover().once().await.unwrap(), 1);
}

/// Files of the first version, with and without what a provider's summary is stored in, are updated when they are opened.
#[test]
fn updates_files_of_the_first_version() {
    for column in ["", ", details TEXT"] {
        let directory = Directory::new();
        drop(block_on(SqliteStore::open(directory.file())).unwrap());
        let connection = Connection::open(directory.file()).unwrap();
        let old = format!(
            "DROP TABLE summaries;
             CREATE TABLE summaries (conversation TEXT PRIMARY KEY NOT NULL, messages INTEGER NOT NULL, text TEXT NOT NULL{column});
             INSERT INTO summaries (conversation, messages, text) VALUES ('c', 4, 'They were looked up.');
             DROP TABLE leases;
             CREATE TABLE leases (run TEXT PRIMARY KEY NOT NULL, driver TEXT NOT NULL, expires INTEGER NOT NULL);
             INSERT INTO leases VALUES ('driven', 'driver', unixepoch() * 1000 + 20000), ('far', 'driver', unixepoch() * 1000 + 86400000);
             PRAGMA user_version = 1"
        );
        connection.execute_batch(&old).unwrap();
        drop(connection);
        for _ in 0..2 {
            let store = block_on(SqliteStore::open(directory.file())).unwrap();
            let summary = block_on(store.load_summary(&ConversationId::new("c"))).unwrap().unwrap();
            assert_eq!((summary.messages, &*summary.text), (4, "They were looked up."));
            for (run, state) in [("driven", LeaseState::HeldElsewhere), ("far", LeaseState::Free)] {
                let driver = DriverId::unique();
                assert_eq!(block_on(store.lease(run, &driver, LeaseRequest::Check)).unwrap(), state);
            }
        }
    }
}

#[test]
fn refuses_other_files_without_changing_them() {
    let foreign = "it is the database of another program; use a separate file for the store";
    let table = [
        ("CREATE TABLE messages (a)", foreign),
        ("PRAGMA user_version = 1", foreign),
        ("PRAGMA application_id = 7", foreign),
        (
            "PRAGMA application_id = 0x746f6f6c; PRAGMA user_version = 4",
            "its tables have version 4, but this program supports version 3; \
             use the program that created it or another file",
        ),
    ];
    for (sql, expected) in table {
        let directory = Directory::new();
        let path = directory.file();
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let before = std::fs::read(&path).unwrap();
        let error = block_on(SqliteStore::open(&path)).unwrap_err();
        assert_eq!((error.kind(), error.conversation()), (MemoryErrorKind::Open, None));
        assert_eq!(
            error.to_string(),
            format!("could not open the store `{}`: {expected}", path.display()),
            "{sql}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), before, "{sql}");
    }
    let directory = Directory::new();
    std::fs::write(directory.file(), "this is not a database, but long enough to be read as one".repeat(99))
        .unwrap();
    let error = block_on(SqliteStore::open(directory.file())).unwrap_err();
    assert!(error.to_string().ends_with(": file is not a database"), "{error}");
    let error = block_on(SqliteStore::open(directory.0.join("none/a.db"))).unwrap_err();
    assert_eq!(error.kind(), MemoryErrorKind::Open);
}

#[test]
fn a_path_is_not_a_uri() {
    let directory = Directory::new();
    let path = directory.0.join("file:a?mode=memory b.db");
    block_on(open(&path).append(&id(), &[Message::user("a")])).unwrap();
    assert!(path.exists());
    assert_eq!(block_on(open(&path).load(&id())).unwrap().len(), 1);
}

// The runtime has one thread, which must not be blocked.
#[tokio::test(flavor = "current_thread")]
async fn waiting_for_another_process_does_not_block_the_runtime() {
    let directory = Directory::new();
    let memory = ChatMemory::new(SqliteStore::open(directory.file()).await.unwrap());
    let other = Connection::open(directory.file()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let commit = tokio::spawn({
        let memory = memory.clone();
        async move { memory.commit(&id(), &[Message::user("a")]).await }
    });
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert!(!commit.is_finished());
    other.execute_batch("COMMIT").unwrap();
    commit.await.unwrap().unwrap();
    assert_eq!(memory.messages(&id()).await.unwrap().len(), 1);
}

/// Its length alone decides: nobody who writes holds it up, and it holds up nobody.
#[test]
fn a_too_long_message_is_refused_without_a_transaction() {
    let directory = Directory::new();
    let store = open(&directory.file());
    block_on(store.save_run("a", &mut Run::new([Message::user("Go")]))).unwrap();
    let other = Connection::open(directory.file()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let [long, longest] = [1, 0]
        .map(|more| RunCommand::Say("x".repeat(UserMessage::MAX_BYTES + more).into()))
        .map(PostedCommand::new);
    assert_eq!(block_on(store.post("a", &long)).unwrap(), PostOutcome::Full);
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(block_on(store.post("a", &longest)).unwrap(), PostOutcome::Posted);
}

#[tokio::test(flavor = "current_thread")]
async fn skips_operations_whose_future_was_dropped() {
    let directory = Directory::new();
    let store = SqliteStore::open(directory.file()).await.unwrap();
    let other = Connection::open(directory.file()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (id, first, second) = (id(), [Message::user("first")], [Message::user("second")]);
    let mut append = store.append(&id, &first);
    assert!((&mut append).now_or_never().is_none());
    // The first occupies the thread, so the second is dropped before its turn.
    assert!(store.append(&id, &second).now_or_never().is_none());
    other.execute_batch("COMMIT").unwrap();
    append.await.unwrap();
    assert_eq!(store.load(&id).await.unwrap(), first);
}

/// Conversations are private, so no other user of the machine may read the files.
#[cfg(unix)]
#[test]
fn only_its_owner_can_read_a_new_file() {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    let modes = |directory: &Path| {
        let files = fs::read_dir(directory).unwrap().map(|file| {
            let file = file.unwrap();
            (file.file_name().into_string().unwrap(), file.metadata().unwrap().permissions().mode() & 0o777)
        });
        let mut modes: Vec<_> = files.collect();
        modes.sort();
        modes
    };
    let directory = Directory::new();
    let store = open(&directory.file());
    block_on(store.append(&id(), &conversation())).unwrap();
    let expected = ["a.db", "a.db-shm", "a.db-wal"].map(|name| (name.to_owned(), 0o600));
    assert_eq!(modes(&directory.0), expected);
    drop(store);

    // An existing file keeps its mode, and the files next to it have the same.
    let directory = Directory::new();
    fs::write(directory.file(), "").unwrap();
    fs::set_permissions(directory.file(), Permissions::from_mode(0o640)).unwrap();
    let store = open(&directory.file());
    block_on(store.append(&id(), &conversation())).unwrap();
    let expected = ["a.db", "a.db-shm", "a.db-wal"].map(|name| (name.to_owned(), 0o640));
    assert_eq!(modes(&directory.0), expected);

    // SQLite itself creates no file, which others could read for a moment.
    let directory = Directory::new();
    symlink(directory.0.join("missing.db"), directory.file()).unwrap();
    let error = block_on(SqliteStore::open(directory.file())).unwrap_err();
    assert_eq!(error.kind(), MemoryErrorKind::Open);
    assert!(!directory.0.join("missing.db").exists());
}
