//! Stores of runs: a state is replaced only by a run that continues it, and a removed run does not return.

use std::future::pending;
use std::sync::atomic::{AtomicU8, Ordering};

use futures_util::FutureExt;
use tests::support::stores::{run_ids, run_stores, stored_runs};
use tests::support::ways::restored;
use tool_core::memory::{InMemoryStore, RunFilter, RunSummary};
use tool_core::run::Run;
use tool_core::store::{RunChanges, RunConflict, RunLog, RunRevision, RunStore, SaveOutcome, StoreFuture};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ChatMemory, Message, RunErrorKind};

fn run(text: &str) -> Run {
    Run::new([Message::user(text)])
}

/// Saves a copy that is outdated.
async fn assert_conflict(store: &dyn RunStore, id: &str, copy: &mut Run) {
    let before = store.load_run(id).await.unwrap().map(|run| serde_json::to_string(&run).unwrap());
    for _ in 0..2 {
        let error = store.save_run(id, copy).await.unwrap_err();
        assert_eq!(error.downcast_ref::<RunConflict>().unwrap().id(), id);
    }
    let after = store.load_run(id).await.unwrap().map(|run| serde_json::to_string(&run).unwrap());
    assert_eq!(before, after, "nothing was changed");
}

#[tokio::test]
async fn stores_runs_under_any_id() {
    for (name, store) in run_stores().await {
        let first = run("a").with_conversation("user-7");
        assert!(store.load_run("b").await.unwrap().is_none(), "{name}");
        for id in ["b", "", "a'; DROP TABLE runs; --\0x"] {
            store.save_run(id, &mut first.clone()).await.unwrap();
        }
        store.remove_run("b").await.unwrap();
        store.save_run("b", &mut run("b")).await.unwrap();
        assert_eq!(run_ids(&store).await, ["", "a'; DROP TABLE runs; --\0x", "b"], "{name}");
        let stored = store.load_run("b").await.unwrap().unwrap();
        assert_eq!((stored.messages()[0].text(), stored.conversation()), ("b".into(), None), "{name}");
        let stored = store.load_run("").await.unwrap().unwrap();
        let conversation = stored.conversation().map(ToString::to_string);
        assert_eq!(
            (stored.messages()[0].text(), conversation.as_deref()),
            ("a".into(), Some("user-7")),
            "{name}"
        );
        store.remove_run("b").await.unwrap();
        store.remove_run("b").await.unwrap();
        assert!(store.load_run("b").await.unwrap().is_none(), "{name}");
        assert_eq!(run_ids(&store).await.len(), 2, "{name}");
    }
}

#[tokio::test]
async fn only_a_run_that_continues_the_stored_state_replaces_it() {
    for (_, store) in run_stores().await {
        let mut first = run("a");
        assert_eq!(first.revision(), None);
        let mut never_stored = first.clone();
        store.save_run("a", &mut first).await.unwrap();
        assert_conflict(&*store, "a", &mut never_stored).await;
        assert_conflict(&*store, "a", &mut run("another")).await;
        // A copy continues the state as long as nothing else does, also if it was serialized.
        let mut copies = [first.clone(), restored(first.clone())];
        copies[0].deny_and_say("more").unwrap();
        store.save_run("a", &mut copies[0]).await.unwrap();
        assert_conflict(&*store, "a", &mut copies[1]).await;
        assert_conflict(&*store, "a", &mut first).await;
        let mut loaded = store.load_run("a").await.unwrap().unwrap();
        assert_eq!((loaded.messages().len(), loaded.revision()), (2, copies[0].revision()));
        store.save_run("a", &mut loaded).await.unwrap();
        assert_conflict(&*store, "a", &mut copies[0]).await;
    }
}

#[tokio::test]
async fn a_removed_run_does_not_return() {
    for (name, store) in run_stores().await {
        let mut never_stored = run("a");
        let mut stored = never_stored.clone();
        store.save_run("a", &mut stored).await.unwrap();
        store.remove_run("a").await.unwrap();
        assert_conflict(&*store, "a", &mut stored).await;
        assert_conflict(&*store, "a", &mut never_stored).await;
        assert!(store.load_run("a").await.unwrap().is_none(), "{name}");
        // The id belongs to the application, which can use it for another run.
        store.save_run("a", &mut run("b")).await.unwrap();
        assert_conflict(&*store, "a", &mut stored).await;
        // The number of removed runs that a store remembers is bounded. Copies that were stored need no memory.
        for number in 0..1_000 {
            let id = number.to_string();
            store.save_run(&id, &mut run("x")).await.unwrap();
            store.remove_run(&id).await.unwrap();
        }
        assert_conflict(&*store, "c", &mut stored).await;
        // PostgreSQL remembers them for a day.
        if name != "postgres" {
            store.save_run("c", &mut never_stored).await.unwrap();
        }
    }
}

/// A copy of a run that was never stored executes nothing once the run has ended.
#[tokio::test]
async fn a_copy_of_a_finished_run_is_refused() {
    let model = ScriptedModel::new().says("One.").says("Two.");
    let agent = Agent::builder(model.clone()).run_store(InMemoryStore::new()).build().unwrap();
    let run = agent.ask("First?").start().into_run();
    let copy = restored(run.clone());
    assert_eq!(agent.resume(run).await.unwrap().text(), "One.");
    let error = agent.resume(copy).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Conflict) && !error.is_resumable(), "{error}");
    assert_eq!(model.requests().len(), 1, "the model was not called again");
    assert!(stored_runs(&agent).await.is_empty());
}

/// A copy that has an answer already neither stores it nor removes the run that another copy continues.
#[tokio::test]
async fn an_outdated_copy_cannot_finish() {
    let (store, memory) = (InMemoryStore::new(), ChatMemory::in_memory());
    let model = ScriptedModel::new().says("One.");
    let agent = Agent::builder(model).run_store(store.clone()).memory(memory.clone()).build().unwrap();
    let mut run = agent.ask("First?").conversation("a").start();
    while run.advance().await.unwrap() {}
    let copy = run.run().clone();
    let id = copy.id().to_string();
    let mut other = store.load_run(&id).await.unwrap().unwrap();
    other.reject_answer("too short").unwrap();
    store.save_run(&id, &mut other).await.unwrap();
    drop(run);
    let error = agent.resume(copy).start().finish().await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Conflict), "{error}");
    assert_eq!(run_ids(&store).await, [id]);
    assert!(memory.messages("a").await.unwrap().is_empty());
}

/// A store whose next save fails or hangs, before or after it took effect.
#[derive(Default)]
struct Uncertain {
    store: InMemoryStore,
    fault: AtomicU8,
}

const FAILS: u8 = 1;
const HANGS: u8 = 2;
const HAS_EFFECT: u8 = 4;

impl RunStore for Uncertain {
    fn append_run<'a>(
        &'a self,
        id: &'a str,
        expected: Option<&'a RunRevision>,
        changes: &'a RunChanges,
    ) -> StoreFuture<'a, SaveOutcome> {
        Box::pin(async move {
            let fault = self.fault.swap(0, Ordering::SeqCst);
            if fault == 0 || fault & HAS_EFFECT != 0 {
                let outcome = self.store.append_run(id, expected, changes).await?;
                if fault == 0 {
                    return Ok(outcome);
                }
            }
            if fault & HANGS != 0 { pending().await } else { Err("the disk is gone".into()) }
        })
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

/// A save that failed or was dropped can be repeated, whether it took effect or not.
#[tokio::test]
async fn a_save_without_a_known_outcome_can_be_repeated() {
    for fault in [FAILS, HANGS, FAILS | HAS_EFFECT, HANGS | HAS_EFFECT] {
        for is_stored in [false, true] {
            let store = Uncertain::default();
            let mut run = run("a");
            if is_stored {
                store.save_run("a", &mut run).await.unwrap();
            }
            store.fault.store(fault, Ordering::SeqCst);
            let outcome = store.save_run("a", &mut run).now_or_never();
            assert!(outcome.is_none_or(|outcome| outcome.is_err()), "{fault}");
            let mut copy = restored(run.clone());
            run.deny_and_say("more").unwrap();
            store.save_run("a", &mut run).await.unwrap();
            store.save_run("a", &mut run).await.unwrap();
            assert_eq!(store.load_run("a").await.unwrap().unwrap().messages().len(), 2);
            assert_conflict(&store, "a", &mut copy).await;
        }
    }
}
