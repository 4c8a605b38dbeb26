//! Random trees of agents that ask each other, and the description of how they end, for tests in all worlds.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use tool_core::agent::{AgentBuilder, Compaction};
use tool_core::engine::InnerRun;
use tool_core::layer::{AnswerVerdict, CallVerdict, OutputVerdict, QuestionVerdict, guard};
use tool_core::memory::{Budget, InMemoryStore};
use tool_core::model::{
    AssistantMessage, ChatModel, ChatRequest, ChatResponse, Cost, Currency, ModelPrices, Prices, Usage,
};
use tool_core::provider::ModelFuture;
use tool_core::run::{Decision, Run, Wait, WaitReason};
use tool_core::store::ChatStore;
use tool_core::tool::{AskError, Asker, Attempt, IdempotencyKey, ToolExecution};
use tool_core::{Agent, Answer, ConversationId, Event, Message, ToolCall, ToolError, tool, tools};

/// An agent with the calls of its turns.
pub(crate) struct Node {
    id: String,
    turns: Vec<Vec<Action>>,
    /// Layers judge all parts of its run, and replace some.
    is_guarded: bool,
    /// What it has read is hidden, or summarized.
    compacts: bool,
    /// As an agent that another one asks: its limits are its own, or its conversation is.
    has_own_limits: bool,
    /// Its messages and those of earlier runs are in the memory of the world, if that has one.
    remembers: bool,
    /// Its time is limited, to more than it takes with all that can happen inside.
    counts_time: bool,
    hours: u64,
    /// Its requests are charged to a budget of its own, which is large.
    is_charged: bool,
    end: End,
}

/// How a run ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    /// As its calls say.
    Answer,
    /// Before the calls of its last turn, by the limit of turns.
    FewTurns,
    /// After the calls of its last turn, because the answer would cost more than its limit. Its own limit is not that of a run around it, in
    /// which others would spend at the same time.
    LittleMoney,
    /// By the limit of its time, in its last call, which has no end. Only where time can be skipped.
    LittleTime,
    /// Because a hook panics when this turn starts.
    Panic(u32),
}

enum Action {
    Book,
    Sign,
    Pay,
    /// Asks a person.
    Choose,
    /// Excludes other calls.
    Lock,
    /// Fails once.
    Retry,
    /// Layers refuse it, or replace its output.
    Tell,
    /// Has a long output.
    Read,
    Ask(Node),
    /// Another agent takes over. It is the last call, and alone.
    HandOff(Node),
    /// Has no end. It is the last call, and alone.
    Stall,
    /// Its output is the answer. It is alone in its turn.
    Report,
    /// Ends the run. It is alone in its turn.
    Close,
    /// Waits for a person, who then cancels the outermost run. It is the last call, and alone.
    Leave,
}

/// Deterministic pseudo-random numbers (splitmix64).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % limit
    }
}

const LEVELS: u64 = 4;
/// What each request costs, in millionths.
const REQUEST_COST: u64 = 50;

/// Returns the tree of a seed.
#[allow(dead_code)] // Each world has one of the two.
pub(crate) fn tree(seed: u64) -> Node {
    node(&mut Dice(seed), "n".into(), LEVELS, false)
}

/// Returns the tree of a seed for a world in which time can be skipped.
#[allow(dead_code)]
pub(crate) fn timed_tree(seed: u64) -> Node {
    node(&mut Dice(seed), "n".into(), LEVELS, seed.is_multiple_of(2))
}

fn node(dice: &mut Dice, id: String, levels: u64, stalls: bool) -> Node {
    let mut turns: Vec<Vec<Action>> = Vec::new();
    for turn in 0..1 + dice.below(2) {
        let actions = (0..1 + dice.below(3)).map(|position| match dice.below(13) {
            0 | 1 => Action::Book,
            2 => Action::Sign,
            3 => Action::Pay,
            4 => Action::Choose,
            // It would wait for what stalls elsewhere, unless one call is executed after the other.
            5 if !stalls => Action::Lock,
            6 => Action::Retry,
            7 => Action::Tell,
            8 => Action::Read,
            _ if levels > 1 => Action::Ask(node(dice, format!("{id}.{turn}{position}"), levels - 1, stalls)),
            _ => Action::Book,
        });
        turns.push(actions.collect());
    }
    let mut end = End::Answer;
    let asks_nobody = turns.iter().flatten().all(|action| !matches!(action, Action::Ask(_)));
    match dice.below(14) {
        0 => turns.push(vec![Action::Close]),
        1 => turns.push(vec![Action::Report]),
        2 => end = End::FewTurns,
        3 | 4 if levels == LEVELS => turns.push(vec![Action::Leave]),
        3 | 4 if asks_nobody => end = End::LittleMoney,
        5 if stalls => {
            turns.push(vec![Action::Stall]);
            end = End::LittleTime;
        }
        // The panic of the outermost agent is not one of its run.
        8 | 9 if levels < LEVELS => end = End::Panic(1 + dice.below(turns.len() as u64 + 1) as u32),
        6 | 7 if levels > 1 => {
            let mut next = node(dice, format!("{id}.h"), levels - 1, stalls);
            // The limits of a run are those of its first agent.
            next.end = End::Answer;
            next.turns.retain(|actions| !matches!(actions[..], [Action::Stall]));
            turns.push(vec![Action::HandOff(next)]);
        }
        _ => {}
    }
    let mut flip = || dice.below(2) == 0;
    Node {
        id,
        turns,
        is_guarded: flip(),
        compacts: flip(),
        has_own_limits: flip(),
        remembers: flip(),
        counts_time: flip(),
        hours: 10_u64.pow(levels as u32),
        is_charged: flip(),
        end,
    }
}

impl Node {
    /// Returns `true` if the run ends without an answer.
    pub(crate) fn fails(&self) -> bool {
        let ends = |action: &Action| match action {
            Action::Close | Action::Leave => true,
            Action::HandOff(next) => next.fails(),
            _ => false,
        };
        self.end != End::Answer || self.turns.iter().flatten().any(ends)
    }

    /// Returns the ids of the agents that have a budget.
    fn charged(&self) -> Vec<String> {
        let inner = self.turns.iter().flatten().flat_map(|action| match action {
            Action::Ask(inner) | Action::HandOff(inner) => inner.charged(),
            _ => Vec::new(),
        });
        self.is_charged.then(|| self.id.clone()).into_iter().chain(inner).collect()
    }

    /// Returns `true` if a request that was in flight, and counts as paid, can end a run earlier.
    #[allow(dead_code)] // Not all worlds look at states.
    pub(crate) fn counts_money(&self) -> bool {
        let inner = |action: &Action| matches!(action, Action::Ask(inner) | Action::HandOff(inner) if inner.counts_money());
        self.end == End::LittleMoney || self.turns.iter().flatten().any(inner)
    }

    fn call(&self, turn: usize, position: usize) -> ToolCall {
        let id = format!("{}:{turn}{position}", self.id);
        let (name, arguments) = match &self.turns[turn][position] {
            Action::Book => ("book", "{}"),
            Action::Sign => ("sign", "{}"),
            Action::Pay => ("pay", "{}"),
            Action::Choose => ("choose", "{}"),
            Action::Lock => ("lock", "{}"),
            Action::Retry => ("retry", "{}"),
            Action::Tell => (if turn == 0 { "tell" } else { "forbidden" }, "{}"),
            Action::Report => ("report", "{}"),
            Action::Close => ("close", "{}"),
            Action::Leave => ("leave", "{}"),
            Action::Read => ("read", "{}"),
            Action::Stall => ("stall", "{}"),
            Action::HandOff(_) => ("hand_off", "{}"),
            Action::Ask(_) => {
                let name = format!("ask_{}", id.replace(['.', ':'], "_"));
                return ToolCall::new(id, name, r#"{"question": "What now?"}"#);
            }
        };
        ToolCall::new(id, name, arguments)
    }

    /// Adds the effects of the run: its bookings and payments, and the bookings that are undone.
    pub(crate) fn add_effects(&self, has_failed: bool, effects: &mut BTreeSet<String>) {
        let has_failed = has_failed || self.fails();
        let turns = match self.end {
            End::FewTurns => self.turns.len() - 1,
            End::Panic(turn) => turn as usize - 1,
            _ => self.turns.len(),
        };
        for (turn, actions) in self.turns.iter().enumerate().take(turns) {
            for (position, action) in actions.iter().enumerate() {
                let id = self.call(turn, position).id;
                match action {
                    Action::Book => {
                        effects.extend(has_failed.then(|| format!("cancel {id}")));
                        effects.insert(format!("book {id}"));
                    }
                    Action::Pay => drop(effects.insert(format!("pay {id}"))),
                    Action::Ask(inner) | Action::HandOff(inner) => inner.add_effects(has_failed, effects),
                    _ => {}
                }
            }
        }
    }

    pub(crate) fn build(&self, effects: &Effects) -> AgentBuilder {
        let turns =
            self.turns.iter().enumerate().map(|(turn, actions)| {
                (0..actions.len()).map(|position| self.call(turn, position)).collect()
            });
        let tools =
            tools![book, sign, pay, choose, lock, retry, tell, forbidden, read, report, close, leave, stall];
        let model = Puppet { id: self.id.clone(), turns: turns.collect() };
        let mut builder = Agent::builder(model).tools(tools).undo_tools(tools![cancel]);
        // The calls have no arguments and are all alike.
        builder = builder.limits(|l| l.max_repeated_calls(20)).context(effects.clone());
        let prices = ModelPrices::new(0.0, 10.0).with_max_output_tokens(5);
        builder = builder.prices(Prices::from_fn(Currency::USD, move |_, _| Some(prices)));
        let turns = self.turns.len().try_into().unwrap();
        builder = match self.end {
            End::Answer => builder,
            End::FewTurns => builder.limits(|l| l.max_turns(turns)),
            End::LittleMoney => {
                let cost = Cost::new(REQUEST_COST * u64::from(turns), Currency::USD);
                builder.limits(|l| l.max_cost(cost))
            }
            End::LittleTime => builder,
            End::Panic(at) => builder.on_event(move |event| {
                assert!(
                    !matches!(event, Event::TurnStarted { turn, .. } if *turn == at),
                    "the hook is broken"
                );
            }),
        };
        if self.counts_time || self.end == End::LittleTime {
            builder = builder.limits(|l| l.max_time(Duration::from_secs(3600 * self.hours)));
        }
        if self.compacts {
            let compaction = Compaction::when_it_pays().at_tokens(600).keep_recent_tokens(50);
            builder = builder.compaction(compaction.summary_prompt(SUMMARIZE));
        }
        if self.is_charged {
            builder = builder.budget(effects.budget.key(&*self.id));
        }
        if let Some(memory) = effects.memory.as_ref().filter(|_| self.remembers) {
            builder = builder.memory(memory.clone());
        }
        if self.is_guarded {
            builder = builder
                .layer(guard::question(|_| QuestionVerdict::Pass).named("asks"))
                .layer(guard::call(|call: &ToolCall| match &*call.name {
                    "forbidden" => CallVerdict::Deny("never".into()),
                    _ => CallVerdict::Pass,
                }))
                .layer(guard::output(|execution: &ToolExecution| match &*execution.call().name {
                    "tell" => OutputVerdict::replace("hidden"),
                    _ => OutputVerdict::Pass,
                }))
                .layer(guard::answer(|text: &str| match text {
                    "report" => AnswerVerdict::replace("edited"),
                    _ => AnswerVerdict::Pass,
                }));
        }
        for (turn, actions) in self.turns.iter().enumerate() {
            for (position, action) in actions.iter().enumerate() {
                builder = match action {
                    Action::Ask(inner) => {
                        let mut tool = inner
                            .build(effects)
                            .build()
                            .unwrap()
                            .as_tool(self.call(turn, position).name, "Asks");
                        if inner.has_own_limits {
                            tool = tool.own_limits();
                        }
                        if inner.remembers && effects.memory.is_some() {
                            tool = tool.own_conversation();
                        }
                        builder.tools(tool)
                    }
                    Action::HandOff(next) => {
                        builder.handoff_to("hand_off", "Takes over", &next.build(effects).build().unwrap())
                    }
                    _ => builder,
                };
            }
        }
        builder
    }
}

const SUMMARIZE: &str = "Sum it up.";

/// Calls the tools of each turn.
struct Puppet {
    id: String,
    turns: Vec<Vec<ToolCall>>,
}

impl ChatModel for Puppet {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let messages = request.messages();
        // Earlier turns can be hidden, and earlier messages be those of others.
        let turn_of = |message: &Message| {
            let call = message.as_assistant()?.tool_calls.first()?;
            let (id, place) = call.id.split_once(':')?;
            (id == self.id).then(|| 1 + place[..1].parse::<usize>().unwrap())
        };
        let turn = messages.iter().rev().find_map(turn_of).unwrap_or(0);
        let is_summary = messages.last().is_some_and(|last| last.text().contains(SUMMARIZE));
        let reply = match self.turns.get(turn).filter(|_| !is_summary) {
            Some(calls) => AssistantMessage::default().with_tool_calls(calls.clone()),
            None => AssistantMessage::text(if is_summary { "Much was done." } else { "Done." }),
        };
        // Short texts can differ, of calls with an unknown outcome.
        let thousands: usize = messages.iter().map(|message| message.text().len() / 1_000).sum();
        let reply = ChatResponse::new(reply).with_usage(Usage::new(10 + 250 * thousands as u64, 5));
        Box::pin(async move {
            tokio::task::yield_now().await;
            Ok(reply)
        })
    }
}

/// The effects of calls, the budget of all agents, and the memory of a world that has one.
#[derive(Clone)]
pub(crate) struct Effects {
    log: Arc<Mutex<Vec<String>>>,
    budget: Budget,
    memory: Option<InMemoryStore>,
}

impl Default for Effects {
    fn default() -> Self {
        Self { log: Arc::default(), budget: budget(), memory: None }
    }
}

/// What each agent may spend.
const BUDGET: u64 = 1_000_000;

fn budget() -> Budget {
    Budget::cost(InMemoryStore::new(), Cost::new(BUDGET, Currency::USD), Duration::from_secs(24 * 3_600))
}

impl Effects {
    /// Returns what the agents of a tree have spent, in millionths.
    pub(crate) async fn spent(&self, root: &Node) -> Vec<(String, u64)> {
        let mut spent = Vec::new();
        for id in root.charged() {
            let left = self.budget.key(&*id).left().await.unwrap();
            spent.push((id, BUDGET - left));
        }
        spent
    }

    /// Returns the same effects with a new budget, and a new memory, in which the conversation `c` has begun.
    #[allow(dead_code)] // Not all worlds have a memory.
    pub(crate) fn with_new_stores(&self) -> Self {
        let memory = InMemoryStore::new();
        let earlier = [Message::user("Before?"), Message::Assistant(AssistantMessage::text("Earlier."))];
        memory.append(&ConversationId::from("c"), &earlier).now_or_never().unwrap().unwrap();
        Self { budget: budget(), memory: Some(memory), ..self.clone() }
    }

    fn add(&self, what: &str, key: &IdempotencyKey) {
        let id = key.as_str().rsplit('/').next().unwrap();
        self.log.lock().unwrap().push(format!("{what} {}", id.trim_start_matches("undo_")));
    }

    /// Returns the effects in order of their names, and forgets them.
    pub(crate) fn take(&self) -> Vec<String> {
        let mut effects = std::mem::take(&mut *self.log.lock().unwrap());
        effects.sort();
        effects
    }
}

#[tool(undo = "cancel")]
async fn book(#[inject] effects: &Effects, #[inject] key: &IdempotencyKey) {
    tokio::time::sleep(Duration::from_millis(5)).await;
    effects.add("book", key);
}

#[tool]
fn cancel(#[inject] effects: &Effects, #[inject] key: &IdempotencyKey) {
    effects.add("cancel", key);
}

#[tool(needs_approval)]
fn sign() {}

#[tool(at_most_once)]
fn pay(#[inject] effects: &Effects, #[inject] key: &IdempotencyKey) {
    effects.add("pay", key);
}

#[tool]
async fn choose(#[inject] user: &Asker) -> Result<String, AskError> {
    let seat: String = user.ask("Which seat?").choices(["3A", "12C"]).await?;
    user.ask::<String>(format!("Why {seat}?")).await
}

#[tool(exclusive)]
async fn lock() {
    tokio::task::yield_now().await;
}

#[tool(attempts = 2)]
fn retry(#[inject] attempt: &Attempt) -> Result<u32, &'static str> {
    if attempt.number == 1 { Err("busy") } else { Ok(attempt.number) }
}

#[tool]
fn tell() -> &'static str {
    "a secret"
}

#[tool]
fn forbidden() {}

#[tool(pure)]
fn read() -> String {
    "lorem ipsum ".repeat(300)
}

#[tool]
async fn stall() {
    std::future::pending().await
}

#[tool(return_direct)]
fn report() -> &'static str {
    "report"
}

#[tool(needs_approval)]
fn leave() {}

#[tool]
fn close() -> Result<(), ToolError> {
    Err(ToolError::fatal("closed"))
}

/// What a person decides. Nothing cancels the run.
pub(crate) fn decide(wait: &Wait) -> Option<Decision> {
    Some(match &wait.reason {
        WaitReason::Approval(call) if call.name == "leave" => return None,
        WaitReason::Answer(question) if question.text() == "Which seat?" => Decision::answer("12C"),
        WaitReason::Answer(question) => Decision::answer(format!("because of {}", question.text())),
        _ if wait.path.len().is_multiple_of(2) => Decision::approve(),
        _ => Decision::deny("no"),
    })
}

pub(crate) fn calls<'a>(path: &str, executions: impl IntoIterator<Item = &'a ToolExecution>) -> Vec<String> {
    let describe = |one: &ToolExecution| {
        let outcome = match one.outcome() {
            Ok(output) => format!("{output}"),
            Err(error) => format!("{:?}: {error}", error.kind()),
        };
        let original = match one.original_outcome() {
            Ok(output) => format!("{output}"),
            Err(error) => format!("{:?}: {error}", error.kind()),
        };
        let decisions: Vec<_> = one.decisions().iter().map(|decision| decision.kind).collect();
        let (call, attempts, origin) = (one.call(), one.attempts(), one.origin());
        let verdicts = one.verdicts();
        format!(
            "{path} {}: {call}: {outcome} ({original}, {attempts}, {origin:?}, {decisions:?}, {verdicts:?})",
            call.id
        )
    };
    executions.into_iter().map(describe).collect()
}

fn messages(path: &str, messages: &[Message]) -> Vec<String> {
    messages.iter().map(|one| format!("{path} {one:?} {}", one.text())).collect()
}

/// Describes a run and those inside of it, without times.
pub(crate) fn describe_run(path: &str, run: &Run) -> Vec<String> {
    let handoffs: Vec<_> = run.handoffs().iter().map(|handoff| handoff.agent()).collect();
    let mut lines = vec![format!("{path} {:?} {:?} {handoffs:?}", run.usage(), run.verdicts())];
    lines.extend(messages(path, run.messages()));
    lines.extend(calls(path, run.tool_executions()));
    lines.extend(calls(path, run.undo_executions()));
    lines.extend(inside(path, run.inner_runs()));
    lines
}

fn inside<'a>(path: &str, inner: impl IntoIterator<Item = &'a InnerRun>) -> Vec<String> {
    let mut inner: Vec<_> = inner.into_iter().collect();
    // They begin in any order.
    inner.sort_by_key(|inner| inner.call_id());
    let describe =
        |one: &InnerRun| describe_run(&format!("{path}/{}:{}", one.call_id(), one.agent()), one.run());
    inner.into_iter().flat_map(describe).collect()
}

/// Describes an answer and the runs inside, without times.
pub(crate) fn describe_answer(answer: &Answer) -> Vec<String> {
    let handoffs: Vec<_> = answer.handoffs().iter().map(|handoff| handoff.agent()).collect();
    let mut lines =
        vec![format!("{:?} {:?} {} {handoffs:?}", answer.usage(), answer.finish_reason(), answer.text())];
    lines.extend(messages("", answer.new_messages()));
    lines.extend(calls("", answer.tool_executions()));
    lines.extend(inside("", answer.inner_runs()));
    lines
}
