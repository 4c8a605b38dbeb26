//! Random trees of agents that ask each other: they end alike in all ways of driving and from each of their stored states, and
//! exactly the calls of failed runs are undone.

use std::collections::BTreeSet;

use tests::support::sampling::size;
use tests::support::stores::EveryState;
use tests::support::ways::{self, assert_valid, await_resolved, resolve_all, restored};
use tool_core::agent::AgentBuilder;
use tool_core::model::ConversationId;
use tool_core::run::InnerRun;
use tool_core::{Answer, RunError, RunErrorKind};

use super::tree::{Effects, Node, decide, describe_answer, describe_run, timed_tree};

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
    root.build(&effects.with_memory()).context(ConversationId::from("c"))
}

async fn check(seed: u64) {
    let root = timed_tree(seed);
    let effects = Effects::default();
    let outcome = ways::resolved_in_all_ways(|| build(&root, &effects), &decide).await;
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
    let agent = build(&root, &effects).run_store(states.clone()).build().unwrap();
    let undisturbed = describe(&await_resolved(&agent, "What now?", &decide).await);
    assert_eq!(undisturbed, describe(&outcome), "seed {seed}: with a store");
    let once = effects.take();
    for state in states.take() {
        let agent = build(&root, &effects).build().unwrap();
        let mut outcome = agent.resume(serde_json::from_str(&state).unwrap()).await;
        while let Err(error) = &outcome
            && matches!(error.kind(), RunErrorKind::Waiting)
        {
            let mut run = restored(outcome.unwrap_err().into_run());
            resolve_all(&mut run, &decide);
            outcome = agent.resume(run).await;
        }
        assert_eq!(outcome.is_err(), root.fails(), "seed {seed}");
        if !root.counts_money() {
            assert_eq!(describe(&outcome).len(), undisturbed.len(), "seed {seed}");
        }
        let effects = effects.take();
        assert!(effects.iter().all(|effect| once.contains(effect)), "seed {seed}: {effects:?} {once:?}");
        let mut paid: Vec<_> = effects.iter().filter(|effect| effect.starts_with("pay")).collect();
        let all_paid = paid.len();
        paid.dedup();
        assert_eq!(paid.len(), all_paid, "seed {seed}: an `at_most_once` call was executed twice");
    }
}

#[tokio::test(start_paused = true)]
async fn random_trees_of_agents_end_alike_and_are_undone_exactly() {
    for seed in 0..size(3, 40) as u64 {
        check(seed).await;
    }
}
