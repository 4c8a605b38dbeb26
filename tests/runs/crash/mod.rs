//! Runs that are killed repeatedly and still end as undisturbed runs do.
//!
//! A life of a run ends at a point that a seed chooses: between two steps, in the model, in a tool before or after its
//! effect, or before, during or after an operation of the store. The next life continues from the stored state. 50
//! lives are processes that are killed, by themselves at such a point or from outside at any moment; 950 are futures
//! that are dropped at such a point, over a store that outlives them. A sample has fewer of both.

mod life;
mod processes;
mod scenario;
mod witness;
mod world;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use life::{Way, live, poll_while, wait_for};
use scenario::{CONVERSATION, Level, Variant, history, scripted_effects, scripted_text};
use tests::support::sampling::size;
use tests::support::stores::{AnyStore, postgres};
use tool_core::{ChatMemory, SqliteStore};
use witness::{End, Witness};
use world::{Dice, Effect, World, effects};

/// A number of points that no life reaches.
const NEVER: i64 = i64::MAX;

/// Creates an empty directory for the files of one run.
fn directory() -> PathBuf {
    static DIRECTORIES: AtomicU32 = AtomicU32::new(0);
    let number = DIRECTORIES.fetch_add(1, Ordering::Relaxed);
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("crash").join(number.to_string());
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

async fn remember_history(store: &AnyStore) {
    ChatMemory::new(store.clone()).commit(CONVERSATION, &history()).await.unwrap();
}

/// Returns a store in memory, or with `is_shared`, one in PostgreSQL if there is one.
fn new_store(is_shared: bool) -> Option<AnyStore> {
    wait_for(async {
        let store: AnyStore = match is_shared {
            true => Arc::new(postgres().await?),
            false => Arc::new(SqliteStore::in_memory().await.unwrap()),
        };
        remember_history(&store).await;
        Some(store)
    })
}

/// Returns the end of a run that is never killed, and the number of points that it passes.
fn undisturbed(variant: Variant, way: Way) -> (End, Vec<Effect>) {
    let log = directory().join("log");
    let world = World::new(NEVER, world::End::Future, &log);
    let outcome = wait_for(live(variant, way, &new_store(false).unwrap(), &world, &log)).unwrap();
    let (end, effects) = (End::new(&outcome), effects(&log));
    check_undisturbed(variant, &end, &effects);
    (end, effects)
}

/// Checks that a run that is never killed does what its script says: the other ones are compared with it.
fn check_undisturbed(variant: Variant, end: &End, effects: &[Effect]) {
    let (undo_calls, calls): (Vec<_>, Vec<_>) = effects.iter().partition(|one| one.tool == "cancel");
    let mut executed: Vec<_> = calls.iter().map(|one| (one.call_id.clone(), one.attempt)).collect();
    executed.sort();
    assert_eq!(executed, scripted_effects(variant));
    assert_eq!(undo_calls.len(), variant.undo_calls());
    if end.is_answer {
        assert_eq!(end.text, scripted_text(variant, Level::Outer));
    }
}

#[test]
fn all_ways_have_the_same_outcome() {
    for variant in Variant::ALL {
        let ends = Way::ALL.map(|way| undisturbed(variant, way).0);
        assert_eq!((&ends[0], &ends[0]), (&ends[1], &ends[2]));
        assert_eq!(ends[0].is_answer, variant.undone() == 0);
        assert_eq!(ends[0].undone.len(), variant.undone());
    }
}

/// Runs lives until one reaches the end of the run, and returns how many were killed.
fn kill(seed: u64, expected: &[(Variant, (End, Vec<Effect>))], store: AnyStore) -> u32 {
    let mut dice = Dice::new(seed);
    let (variant, expected) = &expected[dice.below(expected.len() as u64) as usize];
    let log = directory().join("log");
    let mut witness = Witness::new(*variant, expected.clone(), store.clone(), &log);
    let mut killed = 0;
    loop {
        let way = Way::ALL[dice.below(3) as usize];
        let world = World::new(dice.below(80) as i64, world::End::Future, &log);
        // Some are dropped while they wait for the store's thread, or while they wait for nothing.
        let mut polls = if dice.below(4) == 0 { 1 + dice.below(200) } else { u64::MAX };
        let may_go_on = || {
            polls -= 1;
            !world.is_over() && polls > 0
        };
        match poll_while(live(*variant, way, &store, &world, &log), may_go_on) {
            None => killed += 1,
            Some(outcome) => {
                witness.conclude(outcome.as_ref().map(End::new));
                return killed;
            }
        }
        witness.check();
    }
}

fn drop_futures(is_shared: bool, kills: u32) {
    let expected = Variant::ALL.map(|one| (one, undisturbed(one, Way::Awaited)));
    let (mut killed, mut seed) = (0, 0);
    while killed < kills {
        let of_this_run = std::panic::catch_unwind(|| kill(seed, &expected, new_store(is_shared).unwrap()));
        killed += of_this_run.unwrap_or_else(|panic| {
            println!("the seed was {seed}");
            std::panic::resume_unwind(panic)
        });
        seed += 1;
    }
}

#[test]
fn a_run_survives_dropped_futures_at_any_point() {
    drop_futures(false, size(100, 950) as u32);
}

/// What was submitted when a life ended is done later, in its place.
#[test]
fn a_run_survives_dropped_futures_at_any_point_on_postgresql() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    if new_store(true).is_some() {
        drop_futures(true, 300);
    }
}
