//! Kept runs are repeated: a run without a change is the same, from each of its states, and nothing is executed.

use tests::support::sampling::size;
use tests::support::stores::EveryState;
use tests::support::ways::{await_resolved, resolve_all, restored};
use tool_core::run::Run;
use tool_core::{Agent, RunErrorKind};
use tool_testing::{ReplayOutcome, replay};

use crate::breaking::tree::{Effects, decide, tree};

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

#[tokio::test(start_paused = true)]
async fn runs_of_random_trees_are_repeated_alike_from_all_states() {
    let mut kept = 0;
    let mut failures = Vec::new();
    for seed in 0..size(30, 300) as u64 {
        let root = tree(seed);
        let effects = Effects::default();
        let states = EveryState::default();
        let agent = root.build(&effects.with_new_stores()).run_store(states.clone()).build().unwrap();
        let _ = await_resolved(&agent, "What now?", &decide).await;
        let plain = root.build(&effects.with_new_stores()).build().unwrap();
        let whole = driven(&plain).await;
        effects.take();
        let states = states.take().into_iter().map(|state| serde_json::from_str(&state).unwrap());
        for (number, run) in states.chain([whole]).enumerate() {
            let outcome = replay(&run, &agent).await;
            if outcome != ReplayOutcome::Same {
                failures.push(format!("seed {seed}, state {number}: {outcome}"));
            }
            kept += 1;
        }
        assert!(effects.take().is_empty(), "seed {seed}");
    }
    assert!(failures.is_empty(), "{} of {kept}: {}", failures.len(), failures.join("\n"));
}
