//! Random trees of agents: they end as in one process, also if their workers die, and exactly the calls of runs that failed are undone.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tool_core::model::{AssistantMessage, ChatModel, ChatRequest, ChatResponse, ModelFuture};
use tool_core::run::Decision;
use tool_core::tool::IdempotencyKey;
use tool_core::{Agent, Message, RunErrorKind, ToolCall, ToolError, tool, tools};
use tool_restate::{RemoteOutcome, RemoteRun, Worker};

use crate::agents::describe_answer;
use crate::support::{Mortal, agent, free_address, register_at, serve, unique, within};

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

    fn call(&self, turn: usize, position: usize) -> ToolCall {
        let id = format!("{}:{turn}{position}", self.id);
        let (name, arguments) = match &self.turns[turn][position] {
            Action::Book => ("book".to_owned(), "{}"),
            Action::Sign => ("sign".to_owned(), "{}"),
            Action::Pay => ("pay".to_owned(), "{}"),
            Action::Close => ("close".to_owned(), "{}"),
            Action::Ask(_) => (format!("ask_{turn}{position}"), r#"{"question": "What now?"}"#),
        };
        ToolCall::new(id, name, arguments)
    }

    /// Adds the ids of the calls that book and pay, and of the calls that are undone.
    fn add_calls(&self, has_failed: bool, all: &mut BTreeSet<String>, undone: &mut BTreeSet<String>) {
        let has_failed = has_failed || self.fails();
        for (turn, actions) in self.turns.iter().enumerate() {
            for (position, action) in actions.iter().enumerate() {
                let id = self.call(turn, position).id;
                match action {
                    Action::Book => {
                        undone.extend(has_failed.then(|| format!("cancel {id}")));
                        all.insert(format!("book {id}"));
                    }
                    Action::Pay => drop(all.insert(format!("pay {id}"))),
                    Action::Ask(inner) => inner.add_calls(has_failed, all, undone),
                    Action::Sign | Action::Close => {}
                }
            }
        }
    }

    fn build(&self, name: Option<&str>, log: &Log) -> Agent {
        let turns =
            self.turns.iter().enumerate().map(|(turn, actions)| {
                (0..actions.len()).map(|position| self.call(turn, position)).collect()
            });
        let builder = Agent::builder(Puppet(turns.collect())).tools(tools![book, sign, pay, close]);
        // The calls have no arguments and are all alike.
        let builder =
            builder.undo_tools(tools![cancel]).limits(|l| l.max_repeated_calls(10)).context(log.clone());
        let mut builder = name.into_iter().fold(builder, |builder, name| builder.name(name));
        for (turn, actions) in self.turns.iter().enumerate() {
            for (position, action) in actions.iter().enumerate() {
                if let Action::Ask(inner) = action {
                    let name = self.call(turn, position).name;
                    builder = builder.tool(inner.build(None, log).as_tool(name, "Asks"));
                }
            }
        }
        builder.build().unwrap()
    }
}

/// Calls the tools of each turn.
struct Puppet(Vec<Vec<ToolCall>>);

impl ChatModel for Puppet {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let turn = request.messages().iter().filter(|one| matches!(one, Message::Assistant(_))).count();
        let reply = match self.0.get(turn) {
            Some(calls) => AssistantMessage::default().with_tool_calls(calls.clone()),
            None => AssistantMessage::text("Done."),
        };
        Box::pin(async move { Ok(ChatResponse::new(reply)) })
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
}

#[tool(undo = "cancel")]
async fn book(#[inject] log: &Log, #[inject] key: &IdempotencyKey) {
    tokio::time::sleep(Duration::from_millis(5)).await;
    log.add("book", key);
}

#[tool]
fn cancel(#[inject] log: &Log, #[inject] key: &IdempotencyKey) {
    log.add("cancel", key);
}

#[tool(needs_approval)]
fn sign() {}

#[tool(at_most_once)]
fn pay(#[inject] log: &Log, #[inject] key: &IdempotencyKey) {
    log.add("pay", key);
}

#[tool]
fn close() -> Result<(), ToolError> {
    Err(ToolError::fatal("closed"))
}

/// What a person decides about the call with this path.
fn decide(path: &str) -> Decision {
    match path.len() % 2 {
        0 => Decision::approve(),
        _ => Decision::deny("no"),
    }
}

/// Returns the description of the answer in one process, if there is one.
async fn run_here(agent: &Agent) -> Option<Vec<String>> {
    let mut outcome = agent.ask("What now?").await;
    loop {
        let error = match outcome {
            Ok(answer) => return Some(describe_answer(&answer)),
            Err(error) => error,
        };
        if !matches!(error.kind(), RunErrorKind::Waiting) {
            return None;
        }
        let mut run = error.into_run();
        for wait in run.waits() {
            run.resolve(&wait.id, decide(&wait.path)).unwrap();
        }
        outcome = agent.resume(run).await;
    }
}

async fn run_there(run: &RemoteRun) -> Option<Vec<String>> {
    loop {
        match run.wait().await.unwrap() {
            RemoteOutcome::Answer(answer) => return Some(describe_answer(&answer)),
            RemoteOutcome::Failed(_) => return None,
            RemoteOutcome::Waiting(waits) => {
                for wait in waits {
                    // It can have been decided about before a worker died.
                    let _ = run.decide(&wait.id, decide(&wait.path)).await;
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn random_trees_end_as_in_one_process() {
    for is_local in [false, true] {
        let trees: Vec<_> = (0..12)
            .map(|seed| (node(&mut Dice(seed), "n".into(), 4), Log::default(), unique("tree")))
            .collect();
        // One worker for all: a registration takes the server longer than a run.
        let agents = trees.iter().map(|(root, log, name)| root.build(Some(name), log));
        let worker = agents.fold(Worker::new(), Worker::agent);
        let _worker = serve(if is_local { worker.local_calls() } else { worker }).await;
        for (seed, (root, log, name)) in trees.iter().enumerate() {
            let expected = run_here(&root.build(None, &Log::default())).await;
            assert_eq!(expected.is_none(), root.fails());
            let run = agent(name).ask("What now?").send().await.unwrap();
            let described = within(&format!("seed {seed}"), run_there(&run)).await;
            assert_eq!(described, expected, "seed {seed}, local: {is_local}");
            let (mut all, mut undone) = Default::default();
            root.add_calls(false, &mut all, &mut undone);
            all.append(&mut undone);
            let mut effects = log.0.lock().unwrap().clone();
            effects.sort();
            assert_eq!(effects, Vec::from_iter(all), "seed {seed}, local: {is_local}");
        }
    }
}

/// Calls that were interrupted are executed again, `at_most_once` calls and those with an outcome are not.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn random_trees_outlive_their_workers() {
    for seed in 0..8 {
        let root = node(&mut Dice(seed), "n".into(), 4);
        let (log, name, address) = (Log::default(), unique("tree"), free_address());
        let worker = || Worker::new().agent(root.build(Some(&name), &log));
        let mut serving = Mortal::start(worker(), address).await;
        register_at(address).await;
        let run = agent(&name).ask("What now?").send().await.unwrap();
        let ended = run_there(&run);
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
        assert_eq!(described.is_none(), root.fails(), "seed {seed}");
        let (mut all, mut undone) = Default::default();
        root.add_calls(false, &mut all, &mut undone);
        all.append(&mut undone);
        let effects = log.0.lock().unwrap().clone();
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
