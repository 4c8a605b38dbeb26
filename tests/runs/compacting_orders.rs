//! Compaction in every order of events: an agent compacts at each turn that it can, its summaries end in every way, calls are decided and
//! executed in every order, and the run is stored and restored between any two events, also where the process ends in the middle of one.
//!
//! The states are explored breadth-first. Beside the run, the world knows what the model has read last, and how often the tool with an
//! effect was executed.

use std::collections::{HashSet, VecDeque};
use std::future::pending;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tests::support::sampling::is_exhaustive;
use tests::support::ways::assert_valid;
use tokio::sync::Notify;
use tool_core::agent::Compaction;
use tool_core::memory::InMemoryStore;
use tool_core::model::{
    AssistantMessage, ChatRequest, ChatResponse, FinishReason, ModelError, ModelErrorKind, Usage,
};
use tool_core::provider::{JsonText, ModelFuture, ProviderData};
use tool_core::run::{Decision, Run, Step, WaitReason};
use tool_core::store::RunStore;
use tool_core::{Agent, ChatModel, FunctionTool, Message, ToolCall};

const INSTRUCTIONS: &str = "You read pages.";
const QUESTION: &str = "Read all pages";
const SUMMARY: &str = "The pages were read.";
const RECEIPT: &str = "receipt R-7";

/// The tools that the model calls in each turn.
type Script = &'static [&'static [&'static str]];

/// `read` is pure, so its outputs are replaced; outputs of `keep` are hidden only by a summary; `pay` must not be repeated and awaits
/// approval.
const SCRIPTS: [Script; 3] = [
    &[&["read", "read"], &["pay", "read"], &["read"]],
    &[&["keep", "pay"], &["keep"], &["keep"]],
    &[&["read", "keep"], &["keep", "pay"], &["read", "keep"]],
];

/// How a summary ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Summary {
    Good,
    Fails,
    Empty,
    Calls,
    CutOff,
    Longer,
    /// Until its limit.
    Hangs,
    /// The process ends meanwhile.
    Lost,
}

const SUMMARIES: [Summary; 8] = [
    Summary::Good,
    Summary::Fails,
    Summary::Empty,
    Summary::Calls,
    Summary::CutOff,
    Summary::Longer,
    Summary::Hangs,
    Summary::Lost,
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Reply {
    Comes,
    /// The provider refuses the request as too long, once.
    TooLong,
    /// The process ends meanwhile.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    /// The next step is prepared, and the process ends.
    Prepare(Summary),
    Ask(Summary, Reply),
    /// The caller orders a compaction.
    Compact(Summary),
    Execute(usize),
    /// The process ends while the call is executed.
    Interrupt(usize),
    Decide(usize, bool),
    Say,
    Cancel,
}

impl Event {
    /// Returns `true` for what may happen at any moment. A run has only so many surprises, because each adds to its state.
    fn is_surprise(self) -> bool {
        match self {
            Self::Ask(summary, reply) => summary == Summary::Lost || reply != Reply::Comes,
            Self::Prepare(_) | Self::Compact(_) | Self::Interrupt(_) | Self::Say | Self::Cancel => true,
            Self::Execute(_) | Self::Decide(..) => false,
        }
    }

    fn summary(self) -> Summary {
        match self {
            Self::Prepare(summary) | Self::Ask(summary, _) | Self::Compact(summary) => summary,
            _ => Summary::Good,
        }
    }
}

/// What the world does and sees during one event.
struct World {
    summary: Summary,
    reply: Option<Reply>,
    /// The tools to call, and the number of calls before.
    calls: (&'static [&'static str], usize),
    was_asked_for_summary: bool,
    requests: Vec<Vec<Message>>,
    offers_reader: bool,
    payments: usize,
}

#[derive(Clone)]
struct Model {
    /// The provider summarizes, in a form that only it can read.
    is_opaque: bool,
    world: Arc<Mutex<World>>,
    /// The process is to end.
    ends: Arc<Notify>,
}

impl Model {
    async fn summarize(&self, summary: Summary, messages: &[Message]) -> Result<ChatResponse, ModelError> {
        let text = |text: &str| ChatResponse::new(AssistantMessage::text(text));
        match summary {
            Summary::Good => Ok(text(SUMMARY)),
            Summary::Fails => Err(ModelError::new("down")),
            Summary::Empty => Ok(text("  ")),
            Summary::Calls => {
                let reply =
                    AssistantMessage::text("So far").with_tool_calls([ToolCall::new("", "read", "{}")]);
                Ok(ChatResponse::new(reply))
            }
            Summary::CutOff => Ok(text("The pag").with_finish_reason(FinishReason::Length)),
            Summary::Longer => Ok(text(&"x".repeat(messages.iter().map(|one| one.text().len() + 1).sum()))),
            Summary::Hangs => pending().await,
            Summary::Lost => self.end().await,
        }
    }

    /// Returns a summary that has what the user said, and no text.
    fn opaque_summary(messages: &[Message]) -> ChatResponse {
        let is_said = |one: &&Message| !matches!(one, Message::System(_) | Message::Tool(_));
        let said: Vec<_> = messages.iter().filter(is_said).flat_map(texts).collect();
        let mut message = AssistantMessage::default();
        message.provider_data = Some(ProviderData::new("provider", JsonText::serialize(&said).unwrap()));
        ChatResponse::new(message).with_finish_reason(FinishReason::Compaction)
    }

    /// Ends the process.
    async fn end<T>(&self) -> T {
        self.ends.notify_one();
        pending().await
    }
}

impl ChatModel for Model {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move {
            let messages = request.messages();
            let is_own = messages.last().unwrap().text().starts_with("Summarize this");
            let is_summary = is_own || request.is_compaction();
            let (summary, reply, calls) = {
                let mut world = self.world.lock().unwrap();
                world.was_asked_for_summary |= is_summary;
                if !is_summary {
                    world.requests.push(messages.to_vec());
                    world.offers_reader = request.tools().iter().any(|tool| tool.name() == "read_output");
                }
                let reply = if is_summary { None } else { world.reply.replace(Reply::Comes) };
                (world.summary, reply, world.calls)
            };
            if !is_own && is_summary && matches!(summary, Summary::Good | Summary::Longer) {
                let mut response = Self::opaque_summary(messages);
                response.usage = (summary == Summary::Longer).then(|| Usage::new(1, 1_000_000));
                return Ok(response);
            }
            if is_summary {
                return self.summarize(summary, &messages[..messages.len() - 1]).await;
            }
            match reply.expect("no request is expected") {
                Reply::Comes => {}
                Reply::TooLong => {
                    let error = ModelError::new("the prompt is too long");
                    return Err(error.with_kind(ModelErrorKind::ContextLength));
                }
                Reply::Lost => self.end().await,
            }
            let (names, first) = calls;
            let calls = names.iter().enumerate().map(|(position, name)| {
                let number = first + position;
                ToolCall::new(format!("c{number}"), *name, format!(r#"{{"number": {number}}}"#))
            });
            let calls: Vec<_> = calls.collect();
            let text = if calls.is_empty() { "Done." } else { "" };
            Ok(ChatResponse::new(AssistantMessage::text(text).with_tool_calls(calls)))
        })
    }

    fn supports_compaction(&self) -> bool {
        self.is_opaque
    }

    fn reads_summary(&self, summary: &AssistantMessage) -> bool {
        summary.provider_data.is_some()
    }
}

/// Returns what the model reads of a message: its text, or those of the user in a summary of the provider.
fn texts(message: &Message) -> Vec<String> {
    match message.as_assistant().and_then(|reply| reply.provider_data.as_ref()) {
        Some(data) => serde_json::from_str(data.for_provider("provider").unwrap().as_str()).unwrap(),
        None => vec![message.text().into_owned()],
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Page {
    number: usize,
}

fn page(page: Page) -> String {
    format!("page {}: {}", page.number, "lorem ipsum ".repeat(150))
}

#[derive(Clone)]
struct State {
    run: Run,
    /// The messages of the last request, and the compactions until then.
    sent: (Vec<Message>, usize),
    payments: usize,
    surprises: u8,
}

struct Exploration {
    is_opaque: bool,
    script: Script,
    surprises: u8,
}

const TIMES: [&str; 7] = ["started_at", "duration", "asked", "now", "time", "elapsed", "since"];

/// The relation of a run to its store, which each event has anew.
const REVISIONS: [&str; 2] = ["confirmed", "in_doubt"];

/// Returns the state of a run without these members.
fn state_without(run: &Run, names: &[&str]) -> Value {
    fn strip(value: &mut Value, names: &[&str]) {
        match value {
            Value::Object(members) => {
                members.retain(|name, _| !names.contains(&&**name));
                members.values_mut().for_each(|value| strip(value, names));
            }
            Value::Array(items) => items.iter_mut().for_each(|value| strip(value, names)),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(run).unwrap();
    strip(&mut value, names);
    value
}

/// Returns what two runs have in common that have had the same events.
fn timeless(run: &Run) -> Value {
    state_without(run, &[&TIMES[..], &REVISIONS[..]].concat())
}

impl Exploration {
    fn agent(&self, model: &Model, store: InMemoryStore) -> Agent {
        let world = Arc::clone(&model.world);
        let ends = model.clone();
        let pay = FunctionTool::new("pay", move |page: Page| {
            let (world, ends) = (Arc::clone(&world), ends.clone());
            async move {
                let is_interrupted = {
                    let mut world = world.lock().unwrap();
                    world.payments += 1;
                    world.reply == Some(Reply::Lost)
                };
                if is_interrupted {
                    ends.end::<()>().await;
                }
                format!("paid {}, {RECEIPT}, {}", page.number, "thank you ".repeat(100))
            }
        });
        let ends = model.clone();
        let read = FunctionTool::new("read", move |one: Page| {
            let ends = ends.clone();
            async move {
                let is_interrupted = ends.world.lock().unwrap().reply == Some(Reply::Lost);
                if is_interrupted {
                    ends.end::<()>().await;
                }
                page(one)
            }
        });
        let keep = FunctionTool::new("keep", page);
        let compaction = Compaction::when_it_pays().at_tokens(900).keep_recent_tokens(300);
        Agent::builder(model.clone())
            .name("reader")
            .instructions(INSTRUCTIONS)
            .tools(read.description("Reads").pure())
            .tools(keep.description("Reads").keep_output())
            .tools(pay.description("Pays").at_most_once().needs_approval())
            .compaction(compaction)
            .run_store(store)
            .build()
            .unwrap()
    }

    fn events(&self, state: &State) -> Vec<Event> {
        let run = &state.run;
        let mut events = Vec::new();
        if run.is_done() {
            return events;
        }
        if run.is_asking() {
            events.extend(SUMMARIES.map(|summary| Event::Ask(summary, Reply::Comes)));
            for summary in [Summary::Good, Summary::Fails] {
                events.extend([
                    Event::Ask(summary, Reply::TooLong),
                    Event::Prepare(summary),
                    Event::Compact(summary),
                ]);
            }
            events.extend([Event::Ask(Summary::Good, Reply::Lost), Event::Compact(Summary::Lost)]);
        } else {
            // Nothing but requests can be compacted.
            events.push(Event::Compact(Summary::Good));
        }
        for wait in run.waits() {
            let call = call_number(&wait.path);
            events.extend([Event::Decide(call, true), Event::Decide(call, false)]);
        }
        let open = run.current_calls().filter(|(_, outcome)| outcome.is_none());
        for (call, _) in open.filter(|(call, _)| run.waits().iter().all(|wait| wait.path != call.id)) {
            events.push(Event::Execute(call_number(&call.id)));
            if call.name != "keep" {
                events.push(Event::Interrupt(call_number(&call.id)));
            }
        }
        events.extend([Event::Say, Event::Cancel]);
        events.retain(|event| state.surprises > 0 || !event.is_surprise());
        events
    }

    /// Lets an event happen to a restored copy of the run. Returns nothing if the event differs from another one only in how a summary ends
    /// that was not asked for.
    async fn apply(&self, state: &State, event: Event) -> Option<State> {
        let mut next = state.clone();
        next.surprises -= u8::from(event.is_surprise());
        let mut run: Run = serde_json::from_value(state_without(&state.run, &REVISIONS)).unwrap();
        let store = InMemoryStore::new();
        let id = run.id().as_str().to_owned();
        store.save_run(&id, &mut run).await.unwrap();
        let turn = run.turns() as usize;
        let first = self.script[..turn.min(self.script.len())].iter().map(|calls| calls.len()).sum();
        let world = World {
            summary: event.summary(),
            reply: match event {
                Event::Ask(_, reply) => Some(reply),
                Event::Interrupt(_) => Some(Reply::Lost),
                _ => None,
            },
            calls: (self.script.get(turn).copied().unwrap_or_default(), first),
            was_asked_for_summary: false,
            requests: Vec::new(),
            offers_reader: false,
            payments: state.payments,
        };
        let (world, is_opaque) = (Arc::new(Mutex::new(world)), self.is_opaque);
        let model = Model { is_opaque, world, ends: Arc::default() };
        let agent = self.agent(&model, store.clone());
        let happens = async {
            if let Event::Compact(_) = event {
                return Box::pin(agent.compact(run)).await.unwrap();
            }
            let mut driver = agent.resume(run).start();
            match event {
                Event::Prepare(_) => {
                    driver.next().await.unwrap();
                }
                Event::Ask(_, reply) => match driver.advance().await {
                    Ok(advanced) => assert!(advanced),
                    // Nothing could be hidden. The run can be resumed.
                    Err(error) => assert!(reply == Reply::TooLong, "{error}"),
                },
                Event::Execute(number) | Event::Interrupt(number) => {
                    let calls = match driver.next().await.unwrap() {
                        Step::CallTools(calls) => calls,
                        _ => Vec::new(),
                    };
                    // A call that must not be repeated has its outcome if it was interrupted.
                    if let Some(call) = calls.into_iter().find(|call| call_number(&call.id) == number) {
                        let execution = driver.execute(call).await.unwrap();
                        driver.record_result(execution).await.unwrap();
                    }
                }
                Event::Decide(number, approves) => {
                    let waits = driver.run().waits();
                    let wait = waits.iter().find(|wait| call_number(&wait.path) == number).unwrap();
                    assert!(matches!(wait.reason, WaitReason::Approval(_)));
                    let decision = if approves { Decision::approve() } else { Decision::decline() };
                    driver.resolve(&wait.id, decision).unwrap();
                }
                Event::Say => driver.deny_and_say("Hurry").unwrap(),
                Event::Cancel => driver.cancel(),
                Event::Compact(_) => {}
            }
            driver.into_run()
        };
        let ended = tokio::select! {
            biased;
            run = happens => Some(run),
            () = model.ends.notified() => None,
        };
        // What has to be known in the next process is stored.
        let mut stored = store.load_run(&id).await.unwrap().unwrap();
        next.run = match ended {
            Some(run) => {
                stored.apply_changes(&run.changes()).unwrap();
                assert_eq!(timeless(&stored), timeless(&run), "the changes are incomplete");
                run
            }
            None => stored,
        };
        let world = model.world.lock().unwrap();
        if event.summary() != Summary::Good && !world.was_asked_for_summary {
            return None;
        }
        next.payments = world.payments;
        self.check_requests(state, &mut next, &world, event);
        drop(world);
        Some(next)
    }

    /// Checks what the model has read.
    fn check_requests(&self, state: &State, next: &mut State, world: &World, event: Event) {
        let compactions = next.run.compactions().len();
        for request in &world.requests {
            assert_valid(request);
            let read: Vec<_> = request.iter().flat_map(texts).collect();
            assert_eq!((&*read[0], &*read[1]), (INSTRUCTIONS, QUESTION));
            let paid = state
                .run
                .tool_executions()
                .iter()
                .any(|one| one.call().name == "pay" && one.output().is_some());
            assert_eq!(paid, read.iter().any(|one| one.contains(RECEIPT)), "{event:?}");
            let spoken = state.run.messages().iter().filter(|one| one.text() == "Hurry").count();
            assert!(spoken == 0 || read.iter().any(|one| one == "Hurry"));
            // The last results are whole.
            let results = request.iter().rev().take_while(|one| !matches!(one, Message::Assistant(_)));
            assert!(results.into_iter().all(|one| !one.text().contains("was removed to save room")));
            let is_first = !matches!(event, Event::Ask(_, Reply::TooLong)) || next.sent.1 != compactions;
            if next.sent.1 == compactions && is_first {
                assert!(request.starts_with(&next.sent.0), "the request does not begin with the one before");
            }
            next.sent = (request.clone(), compactions);
        }
        if world.offers_reader {
            assert!(compactions > 0 || self.is_opaque);
        }
    }

    /// Checks the rules that hold between a state and the next one.
    fn check(&self, state: &State, next: &State, event: Event) {
        let (before, after) = (&state.run, &next.run);
        // Nothing is lost, and nothing is added by a compaction but its record.
        assert!(after.messages().starts_with(before.messages()), "{event:?}");
        assert!(after.compactions().starts_with(before.compactions()));
        if let Event::Compact(_) | Event::Prepare(_) = event {
            assert_eq!(after.messages(), before.messages());
            let waits =
                |run: &Run| run.waits().into_iter().map(|wait| (wait.id, wait.path)).collect::<Vec<_>>();
            assert_eq!(waits(after), waits(before));
            assert_eq!(open(after), open(before));
        }
        for compaction in after.compactions() {
            let hidden = compaction.summarized_messages();
            assert!(!matches!(after.messages()[hidden], Message::Tool(_)), "a pair is cut apart");
            assert_eq!(hidden > 0, compaction.summary().is_some());
            assert!(hidden > 0 || compaction.cleared_outputs() > 0, "an empty compaction is recorded");
        }
        let new = &after.compactions()[before.compactions().len()..];
        assert!(new.len() <= 2, "{event:?} compacts {} times", new.len());
        let is_good = event.summary() == Summary::Good;
        let replies_too_long = matches!(event, Event::Ask(_, Reply::TooLong));
        let summaries = new.iter().filter(|one| one.summary().is_some()).count();
        assert!(summaries == 0 || is_good || replies_too_long, "{event:?}");
        assert!(event.summary() != Summary::Lost || new.is_empty());
        assert!(next.payments <= 1, "a call is repeated");
    }

    /// Visits all states, and returns their number and what happened in them.
    async fn run(&self) -> (usize, usize, usize) {
        let mut run =
            serde_json::to_value(Run::new([Message::system(INSTRUCTIONS), Message::user(QUESTION)])).unwrap();
        run["id"] = "run_1".into();
        let start = State {
            run: serde_json::from_value(run).unwrap(),
            sent: Default::default(),
            payments: 0,
            surprises: self.surprises,
        };
        let (mut visited, mut cleared, mut summarized) = (HashSet::new(), 0, 0);
        let mut queue = VecDeque::from([(start, Vec::new())]);
        let mut number = 0;
        while let Some((state, path)) = queue.pop_front() {
            let mut events = self.events(&state);
            assert!(!events.is_empty() || state.run.is_done(), "the run cannot continue");
            number += 1;
            if !is_exhaustive() && number % 97 != 0 {
                events.retain(|event| !event.is_surprise());
            }
            if let (true, Ok(answer)) = (state.run.is_done(), state.run.clone().finish()) {
                assert_eq!(answer.text(), "Done.");
            }
            for event in events {
                let path: Vec<_> = path.iter().copied().chain([event]).collect();
                let explains = Explain(path);
                let Some(next) = self.apply(&state, event).await else { continue };
                self.check(&state, &next, event);
                let mut hasher = DefaultHasher::new();
                (timeless(&next.run).to_string(), next.sent.1, next.payments, next.surprises)
                    .hash(&mut hasher);
                if visited.insert(hasher.finish()) {
                    let last = next.run.compactions().last();
                    cleared += usize::from(last.is_some_and(|one| one.cleared_outputs() > 0));
                    summarized += usize::from(last.is_some_and(|one| one.summary().is_some()));
                    queue.push_back((next, explains.0.clone()));
                }
            }
        }
        (visited.len(), cleared, summarized)
    }
}

/// Prints what has happened if a check fails.
struct Explain(Vec<Event>);

impl Drop for Explain {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{:?}", self.0);
        }
    }
}

/// Returns the calls of the open turn, and whether they have an outcome.
fn open(run: &Run) -> Vec<(ToolCall, bool)> {
    run.current_calls().map(|(call, outcome)| (call.clone(), outcome.is_some())).collect()
}

fn call_number(id: &str) -> usize {
    id.strip_prefix('c').and_then(|number| number.parse().ok()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn every_order_of_events_keeps_a_compacted_run_whole() {
    // The last script has most of the states.
    let scripts = if is_exhaustive() { &SCRIPTS[..] } else { &SCRIPTS[..2] };
    let opaque = scripts.last().map(|script| (*script, true));
    for (script, is_opaque) in scripts.iter().map(|script| (*script, false)).chain(opaque) {
        let (states, cleared, summarized) = Exploration { is_opaque, script, surprises: 1 }.run().await;
        println!("{states} states, {cleared} with outputs hidden, {summarized} with a summary");
        let tools = script.concat();
        assert!(cleared > 0 || !tools.contains(&"read"));
        assert!(summarized > 0 || !tools.contains(&"keep"));
    }
}
