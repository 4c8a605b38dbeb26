//! The runs that are disturbed, and the worker that executes them.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tool_core::model::{AssistantMessage, ChatModel, ChatRequest, ChatResponse};
use tool_core::provider::ModelFuture;
use tool_core::tool::IdempotencyKey;
use tool_core::{Agent, Message, ToolCall, ToolContext, ToolError, tool, tools};
use tool_restate::Worker;

pub(super) const ADDRESS: &str = "CRASH_WORKER_ADDRESS";
pub(super) const EFFECTS: &str = "CRASH_EFFECTS";
pub(super) const PROGRAM: &str = "CRASH_PROGRAM";

/// A question, and what the run must be like.
pub(super) struct Case {
    /// The calls: turns are separated by spaces, and the calls of one turn by `+`.
    pub(super) turns: &'static str,
    pub(super) end: End,
    pub(super) person: Person,
    pub(super) converses: bool,
    /// The calls that undo others, in order.
    pub(super) undone: &'static [&'static str],
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    Answer,
    ToolFailed,
    MaxTurns,
    Cancelled,
}

/// What a person does with a run.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Person {
    Nothing,
    Approves,
    Denies,
    /// Cancels it twice, once its call of `hang` has begun.
    Cancels,
}

const fn answers(turns: &'static str, person: Person) -> Case {
    Case { turns, end: End::Answer, person, converses: false, undone: &[] }
}

const fn fails(turns: &'static str, end: End, person: Person, undone: &'static [&'static str]) -> Case {
    Case { turns, end, person, converses: false, undone }
}

pub(super) const CASES: [Case; 11] = [
    answers("note note note", Person::Nothing),
    answers("once note", Person::Nothing),
    answers("ask note", Person::Approves),
    answers("ask note", Person::Denies),
    answers("note+once+note note+note", Person::Nothing),
    answers("note+lock+note lock", Person::Nothing),
    answers("flaky note", Person::Nothing),
    Case { converses: true, ..answers("note note", Person::Nothing) },
    fails("book book fail", End::ToolFailed, Person::Nothing, &["unbook10", "unbook0"]),
    fails("book note note note note", End::MaxTurns, Person::Nothing, &["unbook0"]),
    fails("book hang ask", End::Cancelled, Person::Cancels, &["unbook0"]),
];

pub(super) const MAX_TURNS: u32 = 4;

impl Case {
    pub(super) fn of(number: usize) -> &'static Self {
        &CASES[number % CASES.len()]
    }

    pub(super) fn question(&self, number: usize) -> String {
        format!("r{number}: {}", self.turns)
    }

    /// Returns the calls of each turn, name and step, without the calls of the last turn that the run may take: they are not executed.
    pub(super) fn calls(&self) -> Vec<Vec<(&'static str, usize)>> {
        let turns = self.turns.split(' ').take(MAX_TURNS as usize - 1).enumerate();
        turns.map(|(turn, names)| calls_of(turn, names).collect()).collect()
    }
}

fn calls_of(turn: usize, names: &str) -> impl Iterator<Item = (&str, usize)> {
    names.split('+').enumerate().map(move |(position, name)| (name, 10 * turn + position))
}

/// Calls the tools that the question lists, and answers with their results.
struct Lister;

impl ChatModel for Lister {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        // The last question of a conversation counts.
        let asked = request.messages().iter().rposition(|one| matches!(one, Message::User(_))).unwrap();
        let messages = &request.messages()[asked..];
        let question = messages[0].text().into_owned();
        let (label, turns) = question.split_once(": ").unwrap();
        let turn = messages.iter().filter(|one| one.as_assistant().is_some()).count();
        let reply = match turns.split(' ').nth(turn) {
            Some(names) => {
                let calls = calls_of(turn, names).map(|(name, step)| {
                    let arguments = format!(r#"{{"label": "{label}", "step": {step}}}"#);
                    ToolCall::new(format!("{label}c{step}"), name, arguments)
                });
                AssistantMessage::default().with_tool_calls(calls)
            }
            None => {
                let results = messages.iter().filter(|one| matches!(one, Message::Tool(_)));
                let results: Vec<_> = results.map(|one| one.text().into_owned()).collect();
                AssistantMessage::text(results.join(" "))
            }
        };
        let (step, label) = (format!("model{turn}"), label.to_owned());
        Box::pin(async move {
            let key = format!("{label}-{step}");
            write_line("begin", &step, &label, &key);
            tokio::time::sleep(Duration::from_millis(5)).await;
            write_line("effect", &step, &label, &key);
            write_line("end", &step, &label, &key);
            Ok(ChatResponse::new(reply))
        })
    }
}

/// Asks another agent the question, and answers with its answer.
struct Forwarder;

impl ChatModel for Forwarder {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let last = request.messages().last().unwrap();
        let reply = match last {
            Message::User(_) => {
                let arguments = serde_json::json!({ "question": last.text() }).to_string();
                AssistantMessage::default().with_tool_calls([ToolCall::new("asked", "clerk", arguments)])
            }
            _ => AssistantMessage::text(last.text()),
        };
        Box::pin(async move { Ok(ChatResponse::new(reply)) })
    }
}

pub(super) fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()
}

fn write_line(phase: &str, step: &str, label: &str, key: &str) {
    let mut file = OpenOptions::new().append(true).open(env::var(EFFECTS).unwrap()).unwrap();
    let (process, program, now) = (std::process::id(), env::var(PROGRAM).unwrap(), now());
    file.write_all(format!("{label} {step} {phase} {key} {process} {program} {now}\n").as_bytes()).unwrap();
}

/// Records that a call begins, has its effect in the middle of its time, and ends.
async fn effect(step: String, label: &str, key: &IdempotencyKey) -> String {
    let (key, half) = (key.as_str(), if step.starts_with("once") { 30 } else { 10 });
    write_line("begin", &step, label, key);
    tokio::time::sleep(Duration::from_millis(half)).await;
    write_line("effect", &step, label, key);
    tokio::time::sleep(Duration::from_millis(half)).await;
    write_line("end", &step, label, key);
    step
}

#[tool("Notes something")]
async fn note(label: String, step: u32, #[inject] key: &IdempotencyKey) -> String {
    effect(format!("note{step}"), &label, key).await
}

/// The same tool in the new program, with another definition.
#[tool("Notes something down", name = "note")]
async fn note_down(label: String, step: u32, #[inject] key: &IdempotencyKey) -> String {
    effect(format!("note{step}"), &label, key).await
}

#[tool("Takes effect at most once", at_most_once)]
async fn once(label: String, step: u32, #[inject] key: &IdempotencyKey) -> String {
    effect(format!("once{step}"), &label, key).await
}

#[tool("Is executed alone", exclusive)]
async fn lock(label: String, step: u32, #[inject] key: &IdempotencyKey) -> String {
    effect(format!("lock{step}"), &label, key).await
}

#[tool("Fails on its first attempt", attempts = 2)]
async fn flaky(
    label: String,
    step: u32,
    #[inject] key: &IdempotencyKey,
    #[inject] context: &ToolContext,
) -> Result<String, String> {
    let attempt = context.attempt();
    effect(format!("flaky{step}.{attempt}"), &label, key).await;
    if attempt == 1 { Err("busy".into()) } else { Ok(format!("flaky{step}")) }
}

#[tool("Books something", undo = "unbook")]
async fn book(label: String, step: u32, #[inject] key: &IdempotencyKey) -> String {
    effect(format!("book{step}"), &label, key).await
}

#[tool("Cancels a booking")]
async fn unbook(label: String, step: u32, #[inject] key: &IdempotencyKey) -> String {
    effect(format!("unbook{step}"), &label, key).await
}

#[tool("Needs a person", needs_approval)]
async fn ask(label: String, step: u32, #[inject] key: &IdempotencyKey) -> String {
    effect(format!("ask{step}"), &label, key).await
}

#[tool("Takes longer")]
async fn hang(label: String, step: u32, #[inject] key: &IdempotencyKey) {
    write_line("begin", &format!("hang{step}"), &label, key.as_str());
    tokio::time::sleep(Duration::from_millis(500)).await;
}

#[tool("Fails for good")]
fn fail(label: String, step: u32) -> Result<(), ToolError> {
    Err(ToolError::fatal(format!("{label} {step}")))
}

/// The process of a worker; a test only by its form.
#[tokio::test]
#[ignore = "a process of `runs_survive_their_workers_and_the_server`"]
async fn worker_process() {
    let Ok(address) = env::var(ADDRESS) else { return };
    let notes = if env::var(PROGRAM).unwrap() == "new" { tools![note_down] } else { tools![note] };
    let clerk = Agent::builder(Lister).name("clerk").tools(tools![once, lock, flaky, book, ask, hang, fail]);
    let clerk =
        clerk.tools(notes).undo_tools(tools![unbook]).limits(|l| l.max_turns(MAX_TURNS)).build().unwrap();
    let desk = Agent::builder(Forwarder).name("desk").tools(clerk.as_tool("clerk", "Answers"));
    let worker = Worker::new().agent(clerk).agent(desk.build().unwrap());
    let worker = if env::var_os("CRASH_LOCAL_CALLS").is_some() { worker.local_calls() } else { worker };
    worker.serve(address, std::future::pending()).await.unwrap();
}
