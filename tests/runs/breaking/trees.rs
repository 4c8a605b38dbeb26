//! Random trees of agents that ask each other: they end alike in all ways of driving and from each of their stored states, and
//! exactly the calls of failed runs are undone.

use std::collections::BTreeSet;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use tests::support::sampling::size;
use tests::support::stores::{EveryState, run_stores, stored_runs};
use tests::support::ways::{self, assert_valid, await_resolved, resolve_all, restored};
use tokio::sync::Notify;
use tool_core::agent::AgentBuilder;
use tool_core::engine::InnerRun;
use tool_core::memory::{RunFilter, RunStatus, RunSummary};
use tool_core::model::ConversationId;
use tool_core::run::Run;
use tool_core::store::{RunChanges, RunLog, RunRevision, RunStore, SaveOutcome, StoreFuture};
use tool_core::{Agent, Answer, RunError, RunErrorKind};

use super::tree::{Effects, Node, decide, describe_answer, describe_run, timed_tree, tree};

fn assert_all_valid<'a>(inner: impl Iterator<Item = &'a InnerRun>) {
    for inner in inner {
        assert_valid(inner.run().messages());
        assert_all_valid(inner.run().inner_runs());
    }
}

fn describe(outcome: &Result<Answer, RunError>) -> Vec<String> {
    match outcome {
        Ok(answer) => describe_answer(answer),
        Err(error) => [vec![error.to_string()], describe_run("", error.run())].concat(),
    }
}

/// Returns the agent in a conversation that has begun.
fn build(root: &Node, effects: &Effects) -> AgentBuilder {
    root.build(effects).context(ConversationId::from("c"))
}

async fn check(seed: u64) {
    let root = timed_tree(seed);
    let effects = Effects::default();
    let charged = Mutex::new(Vec::new());
    let build_charged = || {
        let effects = effects.with_new_stores();
        charged.lock().unwrap().push(effects.clone());
        build(&root, &effects)
    };
    let outcome = ways::resolved_in_all_ways(build_charged, &decide).await;
    let charged = charged.into_inner().unwrap();
    let spent = charged[0].spent(&root).await;
    assert_eq!(charged[1].spent(&root).await, spent, "seed {seed}: streamed");
    // The requests of the outermost run, which the program sends itself, are charged to nobody.
    let inside = |mut spent: Vec<(String, u64)>| {
        spent.retain(|(id, _)| id.contains(char::is_numeric));
        spent
    };
    assert_eq!(inside(charged[2].spent(&root).await), inside(spent.clone()), "seed {seed}: step by step");
    assert_eq!(outcome.is_err(), root.fails(), "seed {seed}");
    match &outcome {
        Ok(answer) => assert_all_valid(answer.inner_runs().iter()),
        Err(error) => assert_all_valid(error.run().inner_runs()),
    }
    let mut expected = BTreeSet::new();
    root.add_effects(false, &mut expected);
    let thrice: Vec<_> =
        expected.iter().flat_map(|effect| [effect.clone(), effect.clone(), effect.clone()]).collect();
    assert_eq!(effects.take(), thrice, "seed {seed}");
    // From each state, a run ends as the undisturbed one.
    let states = EveryState::default();
    let stored = effects.with_new_stores();
    let agent = build(&root, &stored).run_store(states.clone()).build().unwrap();
    let undisturbed = describe(&await_resolved(&agent, "What now?", &decide).await);
    assert_eq!(undisturbed, describe(&outcome), "seed {seed}: with a store");
    assert_eq!(stored.spent(&root).await, spent, "seed {seed}: with a store");
    let once = effects.take();
    for state in states.take() {
        let outcome = end_from(
            serde_json::from_str(&state).unwrap(),
            &build(&root, &effects.with_new_stores()).build().unwrap(),
        )
        .await;
        assert_ends_as(&root, &outcome, &undisturbed, &format!("seed {seed}"));
        let effects = effects.take();
        assert!(effects.iter().all(|effect| once.contains(effect)), "seed {seed}: {effects:?} {once:?}");
        assert_paid_once(&effects);
    }
}

/// Continues a stored run to its end.
async fn end_from(run: Run, agent: &Agent) -> Result<Answer, RunError> {
    let mut outcome = agent.resume(run).await;
    while let Err(error) = &outcome
        && matches!(error.kind(), RunErrorKind::Waiting)
    {
        let mut run = restored(outcome.unwrap_err().into_run());
        resolve_all(&mut run, &decide);
        outcome = agent.resume(run).await;
    }
    outcome
}

/// Panics unless a run that was interrupted has ended like the undisturbed one. Texts can differ, of calls whose outcome is unknown.
fn assert_ends_as(root: &Node, outcome: &Result<Answer, RunError>, undisturbed: &[String], case: &str) {
    let error = outcome.as_ref().err();
    assert_eq!(error.is_some(), root.fails(), "{case}: {error:?}");
    if !root.counts_money() {
        let described = describe(outcome);
        assert_eq!(described.len(), undisturbed.len(), "{case}: {error:?} {described:#?} {undisturbed:#?}");
    }
}

fn assert_paid_once(effects: &[String]) {
    let mut paid: Vec<_> = effects.iter().filter(|effect| effect.starts_with("pay")).collect();
    let times = paid.len();
    paid.sort();
    paid.dedup();
    assert_eq!(paid.len(), times, "an `at_most_once` call was executed twice");
}

/// Polls a future this many times. Returns `None` if it is not ready then, and drops it.
async fn polled<T>(future: impl Future<Output = T>, mut polls: usize) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending if polls == 0 => Poll::Ready(None),
        Poll::Pending => {
            polls -= 1;
            Poll::Pending
        }
    })
    .await
}

/// Whenever the future of a run is dropped, the run goes on from its last stored state.
async fn check_dropped(seed: u64) {
    let root = timed_tree(seed);
    let effects = Effects::default();
    let undisturbed =
        await_resolved(&build(&root, &effects.with_new_stores()).build().unwrap(), "What now?", &decide)
            .await;
    let (undisturbed, once) = (describe(&undisturbed), effects.take());
    let booked = |effects: &[String]| -> BTreeSet<String> {
        effects.iter().filter(|effect| !effect.starts_with("pay")).cloned().collect()
    };
    for polls in 0.. {
        let states = EveryState::default();
        let agent = build(&root, &effects.with_new_stores()).run_store(states.clone()).build().unwrap();
        if polled(await_resolved(&agent, "What now?", &decide), polls).await.is_some() {
            assert!(polls > 5, "seed {seed}");
            break;
        }
        let mut all = effects.take();
        if let Some(state) = states.last() {
            let outcome = end_from(
                serde_json::from_str(&state).unwrap(),
                &build(&root, &effects.with_new_stores()).build().unwrap(),
            )
            .await;
            assert_ends_as(
                &root,
                &outcome,
                &undisturbed,
                &format!("seed {seed}, dropped after {polls} polls"),
            );
            all.extend(effects.take());
            if !root.counts_money() {
                assert_eq!(booked(&all), booked(&once), "seed {seed}, dropped after {polls} polls");
            }
            assert_paid_once(&all);
        }
        // A payment that was interrupted may not have happened.
        assert!(all.iter().all(|effect| once.contains(effect)), "seed {seed}: {all:?} {once:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tree_of_agents_goes_on_wherever_its_future_is_dropped() {
    for seed in 0..size(2, 3) as u64 {
        check_dropped(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn random_trees_of_agents_end_alike_and_are_undone_exactly() {
    for seed in 0..size(3, 24) as u64 {
        check(seed).await;
    }
}

/// The store of a process that dies at one of its saves, which is done or not. It has no leases, which would have to expire.
struct LastSave {
    store: Arc<dyn RunStore>,
    saves_left: AtomicUsize,
    is_done: bool,
    dies: Arc<Notify>,
}

impl RunStore for LastSave {
    fn append_run<'a>(
        &'a self,
        id: &'a str,
        expected: Option<&'a RunRevision>,
        changes: &'a RunChanges,
    ) -> StoreFuture<'a, SaveOutcome> {
        let is_last = self.saves_left.fetch_sub(1, Ordering::Relaxed) == 0;
        Box::pin(async move {
            if is_last && !self.is_done {
                self.dies.notify_one();
                pending::<()>().await;
            }
            let saved = self.store.append_run(id, expected, changes).await;
            if is_last {
                self.dies.notify_one();
                pending::<()>().await;
            }
            saved
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

/// Wherever its process dies, the run goes on from what its store has.
async fn check_died(seed: u64, name: &str, store: &Arc<dyn RunStore>) {
    let root = tree(seed);
    let effects = Effects::default();
    let undisturbed =
        await_resolved(&build(&root, &effects.with_new_stores()).build().unwrap(), "What now?", &decide)
            .await;
    let (undisturbed, once) = (describe(&undisturbed), effects.take());
    for death in 0.. {
        let dies = Arc::new(Notify::new());
        let dying = LastSave {
            store: Arc::clone(store),
            saves_left: AtomicUsize::new(death / 2),
            is_done: death % 2 == 1,
            dies: Arc::clone(&dies),
        };
        let first = build(&root, &effects.with_new_stores()).run_store(Arc::new(dying)).build().unwrap();
        tokio::select! {
            _ = await_resolved(&first, "What now?", &decide) => {
                assert!(death > 5, "seed {seed}");
                return;
            }
            () = dies.notified() => {}
        }
        let other = build(&root, &effects.with_new_stores()).run_store(Arc::clone(store)).build().unwrap();
        for stored in stored_runs(&other).await {
            let outcome = end_from(stored.run, &other).await;
            assert_ends_as(&root, &outcome, &undisturbed, &format!("seed {seed}, {name}, death {death}"));
        }
        let all = effects.take();
        assert!(all.iter().all(|effect| once.contains(effect)), "seed {seed}, {name}: {all:?} {once:?}");
        assert_paid_once(&all);
        // A run that had ended, and was not yet removed.
        for finished in store.list_runs(&RunFilter::new()).await.unwrap() {
            assert_eq!(finished.status, RunStatus::Finished, "seed {seed}, {name}");
            store.remove_run(&finished.id).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_tree_of_agents_goes_on_from_any_store_wherever_its_process_dies() {
    for (name, store) in run_stores().await {
        // The tools sleep. A thread or a server answers in real time, and while it works, skipped time would count.
        let skips_time = name == "in memory";
        if skips_time {
            tokio::time::pause();
        }
        for seed in 0..size(1, 3) as u64 {
            check_died(seed, name, &store).await;
        }
        if skips_time {
            tokio::time::resume();
        }
    }
}
