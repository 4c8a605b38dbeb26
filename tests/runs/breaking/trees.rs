//! Random trees of agents that ask each other: they end alike in all ways of driving and from each of their stored states, and
//! exactly the calls of failed runs are undone.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tests::support::deciding::{Decide, Waiting};
use tests::support::sampling::size;
use tests::support::stores::EveryState;
use tests::support::ways::{self, assert_valid, await_it, restored, summary};
use tool_core::agent::AgentBuilder;
use tool_core::run::{Decision, InnerRun};
use tool_core::tool::IdempotencyKey;
use tool_core::{Agent, RunErrorKind, ToolCall, ToolError, tool, tools};

use super::Puppet;

/// An agent with the calls of its turns.
struct Node {
    id: String,
    turns: Vec<Vec<Action>>,
}

enum Action {
    Book,
    Sign,
    Pay,
    Ask(Node),
    /// Ends the run. It is alone in its turn.
    Close,
}

/// Deterministic pseudo-random numbers (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % limit
    }
}

fn node(dice: &mut Dice, id: String, levels: u64) -> Node {
    let mut turns = Vec::new();
    for turn in 0..1 + dice.below(2) {
        let actions = (0..1 + dice.below(2)).map(|position| match dice.below(6) {
            0 | 1 => Action::Book,
            2 => Action::Sign,
            3 => Action::Pay,
            _ if levels > 1 => Action::Ask(node(dice, format!("{id}.{turn}{position}"), levels - 1)),
            _ => Action::Book,
        });
        turns.push(actions.collect());
    }
    if dice.below(5) == 0 {
        turns.push(vec![Action::Close]);
    }
    Node { id, turns }
}

impl Node {
    fn fails(&self) -> bool {
        self.turns.iter().flatten().any(|action| matches!(action, Action::Close))
    }

    fn calls(&self) -> impl Iterator<Item = (String, &Action)> {
        self.turns.iter().enumerate().flat_map(move |(turn, actions)| {
            let id = move |position| format!("{}:{turn}{position}", self.id);
            actions.iter().enumerate().map(move |(position, action)| (id(position), action))
        })
    }

    /// Adds the calls that book, and the undone ones among them.
    fn bookings(&self, has_failed: bool, all: &mut BTreeSet<String>, undone: &mut BTreeSet<String>) {
        let has_failed = has_failed || self.fails();
        for (id, action) in self.calls() {
            match action {
                Action::Book => {
                    undone.extend(has_failed.then(|| id.clone()));
                    all.insert(id);
                }
                Action::Ask(inner) => inner.bookings(has_failed, all, undone),
                _ => {}
            }
        }
    }

    fn build(&self, log: &Log) -> AgentBuilder {
        let tool_name = |action: &Action, id: &str| match action {
            Action::Book => "book".to_owned(),
            Action::Sign => "sign".to_owned(),
            Action::Pay => "pay".to_owned(),
            Action::Close => "close".to_owned(),
            Action::Ask(_) => format!("ask_{}", id.replace(['.', ':'], "_")),
        };
        let mut turns: Vec<Vec<ToolCall>> = self.turns.iter().map(|_| Vec::new()).collect();
        let mut ids = self.calls();
        for (turn, actions) in self.turns.iter().enumerate() {
            for _ in actions {
                let (id, action) = ids.next().unwrap();
                let arguments = match action {
                    Action::Ask(_) => r#"{"question": "What now?"}"#,
                    _ => "{}",
                };
                turns[turn].push(ToolCall::new(&*id, tool_name(action, &id), arguments));
            }
        }
        let model = Puppet::calling(move |turn| turns.get(turn).cloned().unwrap_or_default());
        let builder = Agent::builder(model).tools(tools![book, sign, pay, close]).undo_tools(tools![cancel]);
        // The calls have no arguments and are all alike.
        let builder = builder.limits(|l| l.max_repeated_calls(10));
        self.calls().fold(builder.context(log.clone()), |builder, (id, action)| match action {
            Action::Ask(inner) => {
                let inner = inner.build(log).build().unwrap();
                builder.tool(inner.as_tool(tool_name(action, &id), "Asks"))
            }
            _ => builder,
        })
    }
}

/// The effects of calls.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, what: &str, key: &IdempotencyKey) {
        let id = key.as_str().rsplit('/').next().unwrap();
        self.0.lock().unwrap().push(format!("{what} {}", id.trim_start_matches("undo_")));
    }

    fn take(&self) -> Vec<String> {
        let mut effects = std::mem::take(&mut *self.0.lock().unwrap());
        effects.sort();
        effects
    }
}

#[tool(undo = "cancel")]
async fn book(#[inject] log: &Log, #[inject] key: &IdempotencyKey) {
    tokio::task::yield_now().await;
    log.add("book", key);
}

#[tool]
fn cancel(#[inject] log: &Log, #[inject] key: &IdempotencyKey) {
    log.add("cancel", key);
}

#[tool(needs_approval)]
fn sign(#[inject] log: &Log, #[inject] key: &IdempotencyKey) {
    log.add("sign", key);
}

#[tool(at_most_once)]
fn pay(#[inject] log: &Log, #[inject] key: &IdempotencyKey) {
    log.add("pay", key);
}

#[tool]
fn close() -> Result<(), ToolError> {
    Err(ToolError::fatal("closed"))
}

fn decide(call: &ToolCall) -> Decision {
    match call.id.len() % 2 {
        0 => Decision::approve(),
        _ => Decision::deny("no"),
    }
}

fn assert_all_valid<'a>(inner: impl Iterator<Item = &'a InnerRun>) {
    for inner in inner {
        assert_valid(inner.run().messages());
        assert_all_valid(inner.run().inner_runs());
    }
}

async fn check(seed: u64) {
    let root = node(&mut Dice(seed), "n".into(), 4);
    let log = Log::default();
    let outcome = ways::in_all_ways(|| root.build(&log), decide).await;
    assert_eq!(outcome.is_err(), root.fails(), "seed {seed}");
    match &outcome {
        Ok(answer) => assert_all_valid(answer.inner_runs().iter()),
        Err(error) => assert_all_valid(error.run().inner_runs()),
    }
    let (mut all, mut undone) = Default::default();
    root.bookings(false, &mut all, &mut undone);
    let effects = log.take();
    for id in &all {
        let count = |what: &str| effects.iter().filter(|one| **one == format!("{what} {id}")).count();
        let expected = if undone.contains(id) { 3 } else { 0 };
        assert_eq!((count("book"), count("cancel")), (3, expected), "seed {seed}, {id}");
    }
    // From each state, a run ends as the undisturbed one.
    let states = EveryState::default();
    let agent = root.build(&log).run_store(states.clone()).build().unwrap();
    let undisturbed = summary(&await_it(&agent, "What now?", decide).await);
    let once = log.take();
    for state in states.take() {
        let agent = root.build(&log).build().unwrap();
        let mut outcome = agent.resume(serde_json::from_str(&state).unwrap()).await;
        while let Err(error) = &outcome
            && matches!(error.kind(), RunErrorKind::Waiting)
        {
            let mut run = restored(outcome.unwrap_err().into_run());
            let calls: Vec<_> = run.approvals().collect();
            for call in calls {
                run.decide_call(&call.id, decide(&call)).unwrap();
            }
            outcome = agent.resume(run).await;
        }
        assert_eq!(outcome.is_err(), root.fails(), "seed {seed}");
        let messages = |summary: &serde_json::Value| summary["messages"].as_array().unwrap().len();
        assert_eq!(messages(&summary(&outcome)), messages(&undisturbed), "seed {seed}");
        let effects = log.take();
        assert!(effects.iter().all(|effect| once.contains(effect)), "seed {seed}: {effects:?} {once:?}");
        let mut paid: Vec<_> = effects.iter().filter(|effect| effect.starts_with("pay")).collect();
        let all_paid = paid.len();
        paid.dedup();
        assert_eq!(paid.len(), all_paid, "seed {seed}: an `at_most_once` call was executed twice");
    }
}

#[tokio::test(start_paused = true)]
async fn random_trees_of_agents_end_alike_and_are_undone_exactly() {
    for seed in 0..size(2, 150) as u64 {
        check(seed).await;
    }
}
