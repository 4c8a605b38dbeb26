//! A provider that bills requests by a prompt cache, and long runs with it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tool_core::agent::Compaction;
use tool_core::memory::{InMemoryStore, Window};
use tool_core::model::{
    AssistantMessage, ChatRequest, ChatResponse, Message, ModelError, ModelErrorKind, Usage,
};
use tool_core::provider::ModelFuture;
use tool_core::signatures::Timestamp;
use tool_core::{Agent, ChatMemory, ChatModel, ToolCall, tool, tools};

/// What tokens cost, in input tokens: read from the cache, written to it, and of the output.
const CACHED: f64 = 0.1;
const WRITTEN: f64 = 1.25;
const OUTPUT: f64 = 5.0;

/// The bytes of one token.
const BYTES_PER_TOKEN: usize = 4;

/// The tokens that a request may have.
const WINDOW: usize = 1_000_000;

/// How long the cache keeps what is not read again.
const LIFETIME: Duration = Duration::from_secs(5 * 60);

/// The time between two requests, and the one after each 40th turn, when a person decides.
const TURN: Duration = Duration::from_secs(10);
const BREAK: Duration = Duration::from_secs(20 * 60);
const TURNS_PER_BREAK: usize = 40;

/// The first pages, whose facts the model needs at the end.
const EARLY: usize = 5;

/// The characters of outputs, as tools of a programming agent return them: short JSON and errors, lists of places, files, logs, pages.
/// About 1,000 tokens on average.
const SIZES: [usize; 24] = [
    120, 9_200, 340, 60, 3_800, 1_450, 80, 24_000, 260, 2_100, 90, 610, 14_600, 160, 780, 45, 7_700, 520,
    11_000, 200, 3_000, 70, 18_500, 1_900,
];

/// A model that calls a tool for a number of turns, and bills each request by the part that is not in the cache: the last requests
/// of the same prefix.
#[derive(Clone)]
pub(crate) struct BillingModel {
    turns: usize,
    /// The turns after which it answers.
    turns_per_question: usize,
    tool: &'static str,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    turn: usize,
    has_answered: bool,
    has_searched: bool,
    clock: Duration,
    /// The time of the last request.
    asked: Duration,
    /// A break has begun, and the run does not know it yet.
    is_break: bool,
    /// The prefixes in the cache, as a sign and the tokens of each message, and when they were read.
    cache: Vec<(Duration, Vec<(u64, usize)>)>,
    last: Vec<(u64, usize)>,
    bill: Bill,
}

/// What the requests have cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bill {
    /// In input tokens.
    pub(crate) price: f64,
    pub(crate) tokens: usize,
    /// The tokens of the longest request.
    pub(crate) longest: usize,
    /// The tokens that the request before had sent, unless it was longer ago than the cache lasts, and those of them that were in the cache.
    pub(crate) repeated: usize,
    pub(crate) cached: usize,
    pub(crate) summaries: usize,
    /// The facts of early turns that were visible at the end, found by `read_output`, or lost.
    pub(crate) facts: [usize; 3],
}

impl BillingModel {
    /// Calls this tool with a page, in so many turns.
    pub(crate) fn new(turns: usize, tool: &'static str) -> Self {
        Self { turns, turns_per_question: turns, tool, state: Arc::default() }
    }
}

impl State {
    /// Bills a request. Returns its tokens, and those from the cache.
    fn bill(&mut self, sent: Vec<(u64, usize)>, output: usize) -> (usize, usize) {
        let tokens = |messages: &[(u64, usize)]| messages.iter().map(|(_, tokens)| tokens).sum::<usize>();
        let common =
            |other: &[(u64, usize)]| sent.iter().zip(other).take_while(|(one, other)| one == other).count();
        let oldest = self.clock.saturating_sub(LIFETIME);
        let is_warm = std::mem::replace(&mut self.asked, self.clock) >= oldest;
        self.cache.retain(|(read, _)| *read >= oldest);
        let same = self.cache.iter().map(|(_, prefix)| common(prefix)).max().unwrap_or_default();
        let (all, cached) = (tokens(&sent), tokens(&sent[..same]));
        self.bill.tokens += all;
        self.bill.longest = self.bill.longest.max(all);
        if is_warm {
            let repeated = tokens(&self.last).min(all);
            self.bill.repeated += repeated;
            self.bill.cached += cached.min(repeated);
        }
        self.bill.price += cached as f64 * CACHED + (all - cached) as f64 * WRITTEN + output as f64 * OUTPUT;
        // What was read is used again, and what the request continues is part of it.
        self.cache.retain(|(_, prefix)| common(prefix) < prefix.len());
        self.cache.push((self.clock, sent.clone()));
        self.last = sent;
        (all, cached)
    }
}

fn tokens(text: &str) -> usize {
    text.len().div_ceil(BYTES_PER_TOKEN)
}

/// Returns a sign of a message, which its length and its ends give, and its tokens.
fn sign(message: &Message) -> (u64, usize) {
    let text = message.text();
    let calls = message.as_assistant().map(|reply| &*reply.tool_calls).unwrap_or_default();
    let ends = [text.chars().take(60).collect::<String>(), text.chars().rev().take(60).collect()];
    let mut hasher = DefaultHasher::new();
    (text.len(), ends).hash(&mut hasher);
    calls.iter().for_each(|call| (&call.name, &call.arguments).hash(&mut hasher));
    let calls: usize = calls.iter().map(|call| call.name.len() + call.arguments.len()).sum();
    (hasher.finish(), (text.len() + calls).div_ceil(BYTES_PER_TOKEN))
}

impl ChatModel for BillingModel {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let reply = || -> Result<ChatResponse, ModelError> {
            let mut state = self.state.lock().unwrap();
            let tools: String = request.tools().iter().map(|tool| tool.name().to_owned()).collect();
            let tools = sign(&Message::system(tools));
            let sent: Vec<_> = [tools].into_iter().chain(request.messages().iter().map(sign)).collect();
            if sent.iter().map(|(_, tokens)| tokens).sum::<usize>() > WINDOW {
                let error = ModelError::new("the prompt is too long");
                return Err(error.with_kind(ModelErrorKind::ContextLength));
            }
            state.clock += TURN;
            let is_summary =
                request.messages().last().is_some_and(|last| last.text().starts_with("Summarize this"));
            let is_visible =
                |fact: &&String| request.messages().iter().any(|message| message.text().contains(&**fact));
            // Only the last requests are searched.
            let early = if state.turn == self.turns { EARLY.min(self.turns) } else { 0 };
            let early: Vec<_> = (1..=early).map(fact).collect();
            let visible = early.iter().filter(is_visible).count();
            let answers =
                state.turn.is_multiple_of(self.turns_per_question) && !state.has_answered && state.turn > 0;
            let can_search = request.tools().iter().any(|tool| tool.name() == "read_output");
            let mut is_break = false;
            let message = if is_summary {
                AssistantMessage::text("The pages were read, and their numbers noted. ".repeat(40))
            } else if state.turn == self.turns && visible < early.len() && can_search && !state.has_searched {
                (state.has_searched, state.bill.facts[0]) = (true, visible);
                let missing = early.iter().filter(|fact| !is_visible(fact));
                let search = |fact: &String| {
                    ToolCall::new(
                        "",
                        "read_output",
                        format!(r#"{{"search": "{}"}}"#, &fact[..fact.len() - 5]),
                    )
                };
                AssistantMessage::default().with_tool_calls(missing.map(search))
            } else if state.turn < self.turns && !answers {
                (state.turn, state.has_answered) = (state.turn + 1, false);
                is_break = state.turn.is_multiple_of(TURNS_PER_BREAK);
                let call = ToolCall::new("", self.tool, format!(r#"{{"page": {}}}"#, state.turn));
                AssistantMessage::default().with_tool_calls([call])
            } else {
                if state.turn == self.turns {
                    let before = if state.has_searched { state.bill.facts[0] } else { visible };
                    state.bill.facts = [before, visible - before, early.len() - visible];
                }
                state.has_answered = true;
                AssistantMessage::text("Done.")
            };
            let output = tokens(&message.text) + 30;
            state.bill.summaries += usize::from(is_summary);
            let (all, cached) = state.bill(sent, output);
            if is_break {
                state.is_break = true;
                state.clock += BREAK;
            }
            let mut usage = Usage::new(all as u64, output as u64);
            usage.cached_tokens = Some(cached as u64);
            Ok(ChatResponse::new(message).with_usage(usage))
        };
        Box::pin(std::future::ready(reply()))
    }
}

/// The fact that an output contains.
fn fact(page: usize) -> String {
    format!("The number of page {page:>4} is {:05}", page * 7_919 % 100_000)
}

/// Returns the output of a tool for a page of this size.
fn page(number: usize, chars: usize) -> String {
    let fact = fact(number);
    format!("{fact}\n{}", "lorem ipsum ".repeat(chars.saturating_sub(fact.len()).div_ceil(12)))
}

/// Where the sizes of a run begin.
#[derive(Clone)]
struct First(usize);

#[tool("Reads a page", pure)]
fn read(page: usize) -> String {
    self::page(page, 4_000)
}

#[tool("Reads a page that stays", keep_output)]
fn keep(page: usize) -> String {
    self::page(page, 4_000)
}

#[tool("Reads something", pure)]
fn read_any(#[inject] first: &First, page: usize) -> String {
    self::page(page, SIZES[(first.0 + page * 7) % SIZES.len()])
}

#[tool("Reads something that stays", keep_output)]
fn keep_any(#[inject] first: &First, page: usize) -> String {
    self::page(page, SIZES[(first.0 + page * 7) % SIZES.len()])
}

/// A long run, or a conversation of several.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LongRun {
    pub(crate) turns: usize,
    pub(crate) turns_per_question: usize,
    /// `read` and `keep` return 1,000 tokens, `read_any` and `keep_any` outputs of real sizes. Those to keep can only be summarized.
    pub(crate) tool: &'static str,
    /// The output that comes first of those of real sizes.
    pub(crate) first: usize,
}

impl LongRun {
    /// Returns what it costs.
    pub(crate) async fn bill(self, compaction: Option<Compaction>, window: Option<Window>) -> Bill {
        let model = BillingModel {
            turns_per_question: self.turns_per_question,
            ..BillingModel::new(self.turns, self.tool)
        };
        let memory = window.into_iter().fold(ChatMemory::new(InMemoryStore::new()), ChatMemory::window);
        let agent =
            Agent::builder(model.clone()).tools(tools![read, keep, read_any, keep_any]).memory(memory);
        let agent = agent.context(First(self.first)).limits(|l| l.max_turns(1_000));
        let agent = compaction.into_iter().fold(agent, tool_core::agent::AgentBuilder::compaction);
        let agent = agent.build().unwrap();
        let start = Timestamp::now();
        for _ in 0..self.turns.div_ceil(self.turns_per_question) {
            let mut driver = agent.ask("Read all pages").conversation("c").start();
            while driver.advance().await.unwrap() {
                let mut state = model.state.lock().unwrap();
                if std::mem::take(&mut state.is_break) {
                    let now = start.after(state.clock);
                    drop(state);
                    let mut run = driver.into_run();
                    run.tick(now);
                    driver = agent.resume(run).start();
                }
            }
            driver.finish().await.unwrap();
        }
        let bill = model.state.lock().unwrap().bill;
        assert_eq!(bill.facts.iter().sum::<usize>(), EARLY.min(self.turns));
        bill
    }
}
