//! Random trees of agents: they end as in one process, with equal records, also if their workers die, and exactly the calls of runs that
//! failed are undone.

#[path = "../../../tests/runs/breaking/tree.rs"]
mod tree;

use std::collections::BTreeSet;
use std::time::Duration;

use tool_core::engine::run_of_answer;
use tool_core::tool::ToolExecution;
use tool_core::{Agent, RunErrorKind};
use tool_restate::{RemoteOutcome, RemoteRun, Worker};
use tool_testing::replay;

use self::tree::{Dice, Effects, Node, calls, decide, describe_answer, tree};
use crate::support::{Mortal, agent, free_address, register_at, serve, unique, within};

/// Describes what a client knows of a failure, without times.
fn describe_failure(message: &str, executed: &[ToolExecution], undone: &[ToolExecution]) -> Vec<String> {
    let mut lines = vec![message.to_owned()];
    lines.extend(calls("", executed));
    lines.extend(calls("undo", undone));
    lines
}

/// Returns the description of the end in one process.
async fn run_here(agent: &Agent) -> Vec<String> {
    let mut outcome = agent.ask("What now?").await;
    loop {
        let error = match outcome {
            Ok(answer) => return describe_answer(&answer),
            Err(error) => error,
        };
        if !matches!(error.kind(), RunErrorKind::Waiting) {
            let undone = error.run().undo_executions();
            return describe_failure(&error.to_string(), error.tool_executions(), undone);
        }
        let mut run = error.into_run();
        for wait in run.waits() {
            match decide(&wait) {
                Some(decision) => run.resolve(&wait.id, decision).unwrap(),
                None => run.cancel(),
            }
        }
        outcome = agent.resume(run).await;
    }
}

async fn run_there(run: &RemoteRun, agent: &Agent) -> Vec<String> {
    loop {
        match run.wait().await.unwrap() {
            RemoteOutcome::Answer(answer) => {
                // Its client keeps the run, which is repeated like one of this process.
                let outcome = replay(&run_of_answer(&answer, agent.name()), agent).await;
                assert!(outcome.is_same(), "{outcome}");
                return describe_answer(&answer);
            }
            RemoteOutcome::Failed(failure) => {
                return describe_failure(
                    &failure.message,
                    &failure.tool_executions,
                    &failure.undo_executions,
                );
            }
            RemoteOutcome::Waiting(waits) => {
                for wait in waits {
                    // It can have been decided about before a worker died.
                    let _ = match decide(&wait) {
                        Some(decision) => run.decide(&wait.id, decision).await.map(drop),
                        None => run.cancel().await,
                    };
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the agent of the program that repeats runs.
fn present(root: &Node, name: &str) -> Agent {
    root.build(&Effects::default()).name(name).build().unwrap()
}

fn effects_of(root: &Node) -> BTreeSet<String> {
    let mut effects = BTreeSet::new();
    root.add_effects(false, &mut effects);
    effects
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn random_trees_end_as_in_one_process() {
    for is_local in [false, true] {
        let trees: Vec<_> = (0..16).map(|seed| (tree(seed), Effects::default(), unique("tree"))).collect();
        // One worker for all: a registration takes the server longer than a run.
        let agents =
            trees.iter().map(|(root, effects, name)| root.build(effects).name(&**name).build().unwrap());
        let worker = agents.fold(Worker::new(), Worker::agent);
        let _worker = serve(if is_local { worker.local_calls() } else { worker }).await;
        for (seed, (root, effects, name)) in trees.iter().enumerate() {
            let here = Effects::default();
            let expected = run_here(&root.build(&here).name(&**name).build().unwrap()).await;
            let run = agent(name).ask("What now?").send().await.unwrap();
            let described = within(&format!("seed {seed}"), run_there(&run, &present(root, name))).await;
            assert_eq!(effects.spent(root).await, here.spent(root).await, "seed {seed}, local: {is_local}");
            assert_eq!(described, expected, "seed {seed}, local: {is_local}");
            assert_eq!(effects.take(), Vec::from_iter(effects_of(root)), "seed {seed}, local: {is_local}");
        }
    }
}

/// Calls that were interrupted are executed again, `at_most_once` calls and those with an outcome are not.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn random_trees_outlive_their_workers() {
    for seed in 0..8 {
        let root = tree(seed);
        let (effects, name, address) = (Effects::default(), unique("tree"), free_address());
        let worker = || Worker::new().agent(root.build(&effects).name(&*name).build().unwrap());
        let expected = run_here(&root.build(&Effects::default()).name(&*name).build().unwrap()).await;
        let mut serving = Mortal::start(worker(), address).await;
        register_at(address).await;
        let run = agent(&name).ask("What now?").send().await.unwrap();
        let present = present(&root, &name);
        let ended = run_there(&run, &present);
        let mut ended = std::pin::pin!(within("the end", ended));
        let mut dice = Dice(seed + 100);
        let mut described = None;
        for _ in 0..6 {
            let life = Duration::from_millis(30 + dice.below(120));
            described = tokio::time::timeout(life, &mut ended).await.ok();
            if described.is_some() {
                break;
            }
            drop(serving);
            serving = Mortal::start(worker(), address).await;
        }
        let described = match described {
            Some(described) => described,
            None => ended.await,
        };
        // The outcome of a payment whose worker died is unknown.
        let without_payments =
            |lines: Vec<String>| lines.into_iter().filter(|line| !line.contains("pay")).collect::<Vec<_>>();
        let (described, expected) = (without_payments(described), without_payments(expected));
        assert_eq!(described, expected, "seed {seed}");
        let mut all = effects_of(&root);
        let effects = effects.take();
        // A payment whose worker died before it can be missing.
        let happened: BTreeSet<_> = effects.iter().filter(|one| !one.starts_with("pay")).cloned().collect();
        all.retain(|one| !one.starts_with("pay"));
        assert_eq!(happened, all, "seed {seed}");
        let mut paid: Vec<_> = effects.iter().filter(|one| one.starts_with("pay")).collect();
        let times = paid.len();
        paid.sort();
        paid.dedup();
        assert_eq!(paid.len(), times, "seed {seed}: an `at_most_once` call was executed twice");
    }
}
