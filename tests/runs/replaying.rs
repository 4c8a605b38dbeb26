//! Kept runs are repeated: a run without a change is the same, from each of its states, and nothing is executed.

use std::path::{Path, PathBuf};

use tests::support::sampling::size;
use tests::support::stores::EveryState;
use tests::support::ways::{await_resolved, resolve_all, restored};
use tool_core::engine::run_of_answer;
use tool_core::memory::RunFilter;
use tool_core::run::Run;
use tool_core::store::RunStore;
use tool_core::{Agent, RunErrorKind, SqliteStore};
use tool_testing::{KeptRuns, Note, ReplayOutcome, check_runs, export_run, rehearse, replay};

use crate::breaking::tree::{Effects, decide, tree};

/// A directory of this test, which is removed.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("replaying-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Drives a run to its end. Returns it.
async fn driven(agent: &Agent) -> Run {
    let mut driver = agent.ask("What now?").start();
    loop {
        match driver.advance().await {
            Ok(true) => {}
            Ok(false) => return driver.into_run(),
            Err(error) if matches!(error.kind(), RunErrorKind::Waiting) => {
                let mut run = restored(driver.into_run());
                resolve_all(&mut run, &decide);
                driver = agent.resume(run).start();
            }
            Err(_) => return driver.into_run(),
        }
    }
}

/// Returns `true` if a repeated run is the same. What the model of one that is only known by its answer was offered is not known.
fn is_same(outcome: &ReplayOutcome, is_of_answer: bool) -> bool {
    match outcome {
        ReplayOutcome::Same => true,
        ReplayOutcome::Noted(notes) if is_of_answer => {
            notes.iter().all(|note| matches!(note, Note::OfferUnknown { .. }))
        }
        _ => false,
    }
}

#[tokio::test(start_paused = true)]
async fn runs_of_random_trees_are_repeated_alike_from_all_states() {
    let (mut kept, mut failures) = (0, Vec::new());
    let directory = Directory::new("trees");
    for seed in 0..size(4, 24) as u64 {
        let root = tree(seed);
        let effects = Effects::default();
        let states = EveryState::default();
        let agent = root.build(&effects.with_new_stores()).run_store(states.clone()).build().unwrap();
        let _ = await_resolved(&agent, "What now?", &decide).await;
        let whole = driven(&root.build(&effects.with_new_stores()).build().unwrap()).await;
        effects.take();
        // A world without a store keeps answers.
        let of_answer = whole.clone().finish().ok().map(|answer| run_of_answer(&answer, None));
        let states = states.take().into_iter().map(|state| serde_json::from_str(&state).unwrap());
        let states = states.chain([whole.clone()]).map(|run| (run, false));
        for (number, (run, is_of_answer)) in states.chain(of_answer.map(|run| (run, true))).enumerate() {
            let outcome = replay(&run, &agent).await;
            if !is_same(&outcome, is_of_answer) {
                failures.push(format!("seed {seed}, state {number}: {outcome}"));
            }
            kept += 1;
        }
        let export = export_run(&agent, whole, &directory.0);
        export.redact(|text: &str| "x".repeat(text.chars().count())).await.unwrap();
        if let Err(error) = check_runs(KeptRuns::in_dir(&directory.0), [agent]).await {
            failures.push(format!("seed {seed}, redacted: {error}"));
        }
        clear(&directory.0);
        assert!(effects.take().is_empty(), "seed {seed}");
    }
    assert!(failures.is_empty(), "{} of {kept}: {}", failures.len(), failures.join("\n"));
}

fn clear(directory: &Path) {
    for file in std::fs::read_dir(directory).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
}

/// Returns the bytes of a directory's files.
fn bytes_of(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = files.map(|file| (file.clone(), std::fs::read(file).unwrap())).collect();
    files.sort();
    files
}

#[tokio::test]
async fn a_rehearsal_changes_no_byte_of_a_store() {
    let directory = Directory::new("rehearsed");
    let store = SqliteStore::open(directory.0.join("runs.db")).await.unwrap();
    let mut waiting = 0;
    for seed in 0..size(3, 30) as u64 {
        let effects = Effects::default();
        let name = format!("desk {seed}");
        let agent = tree(seed).build(&effects).name(&*name).run_store(store.clone()).build().unwrap();
        let _ = agent.ask("What now?").await;
        effects.take();
        let listed = store.list_runs(&RunFilter::new().agent(&*name)).await.unwrap().len();
        let before = bytes_of(&directory.0);
        let present = tree(seed).build(&effects).name(&*name).run_store(store.clone()).build().unwrap();
        let rehearsal = rehearse(&store, [present]).await.unwrap();
        let own: Vec<_> = rehearsal.runs.iter().filter(|run| run.agent.as_ref() == Some(&name)).collect();
        assert_eq!(own.len(), listed, "seed {seed}");
        assert!(own.iter().all(|run| run.outcome.as_str() == "goes on"), "seed {seed}: {rehearsal}");
        assert!(bytes_of(&directory.0) == before, "seed {seed}: the store has changed");
        assert!(effects.take().is_empty(), "seed {seed}");
        waiting += listed;
    }
    assert!(waiting > 2, "{waiting} runs wait");
}
