//! The runs that are killed: one call of each kind of tool, some of them concurrent.

use std::future::{IntoFuture, poll_fn};
use std::task::Poll;

use futures_util::FutureExt;
use futures_util::future::join;
use tests::support::stores::AnyStore;
use tool_core::agent::{on_approval, on_question};
use tool_core::memory::{RunFilter, RunSummary};
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ConversationId};
use tool_core::provider::ModelFuture;
use tool_core::run::{Decision, Run};
use tool_core::store::{ChatStore, RunChanges, RunLog, RunRevision, RunStore, SaveOutcome, StoreFuture};
use tool_core::tool::Asker;
use tool_core::{Agent, ChatMemory, ChatModel, Message, ToolCall, ToolContext, ToolError, tool, tools};

use super::world::World;
use tests::support::ways::assert_valid;

/// A variant of the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Variant {
    /// The run ends with an answer.
    Answered,
    /// A tool ends the run, and its calls are undone.
    Failed,
    /// The run calls nothing and is preceded by the history.
    Talk,
    /// The run asks another agent, whose calls take effect, too, and need approval.
    Asks,
    /// The run asks another agent, fails, and the calls of both are undone.
    AsksAndFails,
}

impl Variant {
    pub(crate) const ALL: [Self; 5] =
        [Self::Answered, Self::Failed, Self::Talk, Self::Asks, Self::AsksAndFails];

    /// Returns the number of calls that are undone at the end, including one of the asked agent.
    pub(crate) fn undone(self) -> usize {
        match self {
            Self::Answered | Self::Talk | Self::Asks => 0,
            Self::Failed => 3,
            Self::AsksAndFails => 2,
        }
    }

    /// Returns the number of calls that undo others, of both agents.
    pub(crate) fn undo_calls(self) -> usize {
        match self {
            Self::AsksAndFails => 3,
            other => other.undone(),
        }
    }

    /// Returns the number of messages in the conversation of the agent that is asked.
    pub(crate) fn inner_messages(self) -> usize {
        match script(self, Level::Inner) {
            [] => 0,
            turns => 2 + turns.iter().map(|calls| 1 + calls.len()).sum::<usize>(),
        }
    }
}

/// The levels of the agents: the outer one asks the inner one.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Level {
    Outer,
    Inner,
}

pub(crate) const CONVERSATION: &str = "user-7";
pub(crate) const INNER_CONVERSATION: &str = "\u{1f}team/user-7";
pub(crate) const QUESTION: &str = "Go on";

/// The number of the call that a person denies.
const DENIED: u32 = 2;

/// Returns the messages that precede the run.
pub(crate) fn history() -> Vec<Message> {
    vec![Message::user(QUESTION), Message::assistant("Good morning!")]
}

#[tool]
fn note(
    n: u32,
    #[inject] world: &World,
    #[inject] call: &ToolCall,
    #[inject] context: &ToolContext,
) -> String {
    world.take_effect(call, context);
    format!("noted {n}")
}

async fn work(world: &World, call: &ToolCall, context: &ToolContext) {
    world.pass().await;
    world.take_effect(call, context);
    world.pass().await;
}

#[tool]
async fn fetch(
    n: u32,
    #[inject] world: &World,
    #[inject] call: &ToolCall,
    #[inject] context: &ToolContext,
) -> String {
    work(world, call, context).await;
    format!("fetched {n}")
}

#[tool(exclusive)]
async fn lock(
    n: u32,
    #[inject] world: &World,
    #[inject] call: &ToolCall,
    #[inject] context: &ToolContext,
) -> String {
    work(world, call, context).await;
    format!("locked {n}")
}

#[tool(at_most_once)]
async fn charge(
    n: u32,
    #[inject] world: &World,
    #[inject] call: &ToolCall,
    #[inject] context: &ToolContext,
) -> String {
    work(world, call, context).await;
    format!("charged {n}")
}

/// Fails on its first attempt; an interrupted first attempt counts.
#[tool(attempts = 3)]
async fn flaky(
    n: u32,
    #[inject] world: &World,
    #[inject] call: &ToolCall,
    #[inject] context: &ToolContext,
) -> Result<String, String> {
    work(world, call, context).await;
    if context.attempt() == 1 { Err("busy".into()) } else { Ok(format!("tried {n}")) }
}

#[tool(needs_approval)]
async fn delete(
    n: u32,
    #[inject] world: &World,
    #[inject] call: &ToolCall,
    #[inject] context: &ToolContext,
) -> String {
    work(world, call, context).await;
    format!("deleted {n}")
}

/// Asks two questions at once and then a third, and takes effect after them.
#[tool]
async fn pick(
    n: u32,
    #[inject] user: &Asker,
    #[inject] world: &World,
    #[inject] call: &ToolCall,
    #[inject] context: &ToolContext,
) -> Result<String, ToolError> {
    world.pass().await;
    let question = |which: &str| format!("{which} of {}?", call.id);
    let (first, second) = (user.ask::<String>(question("first")), user.ask::<String>(question("second")));
    let (first, second) = join(first.into_future(), second.into_future()).await;
    let third: String = user.ask(question("third")).await?;
    assert_eq!([first?, second?, third], ["first", "second", "third"].map(question), "another's answer");
    work(world, call, context).await;
    Ok(format!("picked {n}"))
}

#[tool(undo = "cancel")]
async fn book(
    n: u32,
    #[inject] world: &World,
    #[inject] call: &ToolCall,
    #[inject] context: &ToolContext,
) -> String {
    work(world, call, context).await;
    format!("booked {n}")
}

#[tool]
async fn cancel(
    n: u32,
    #[inject] world: &World,
    #[inject] call: &ToolCall,
    #[inject] context: &ToolContext,
) -> String {
    work(world, call, context).await;
    format!("cancelled {n}")
}

#[tool]
async fn close(
    n: u32,
    #[inject] world: &World,
    #[inject] call: &ToolCall,
    #[inject] context: &ToolContext,
) -> Result<u32, ToolError> {
    work(world, call, context).await;
    if n == 0 { Ok(n) } else { Err(ToolError::fatal("the bank is closed")) }
}

/// Returns the calls of each turn.
fn script(variant: Variant, level: Level) -> &'static [&'static [(&'static str, u32)]] {
    match variant {
        Variant::Asks if level == Level::Inner => &[
            &[("fetch", 11), ("charge", 12)],
            &[("delete", 13), ("book", 14)],
            &[("flaky", 15), ("pick", 16)],
        ],
        Variant::AsksAndFails if level == Level::Inner => &[&[("book", 14), ("fetch", 11)], &[("book", 16)]],
        _ if level == Level::Inner => &[],
        Variant::Asks => &[&[("note", 1), ("team", 1), ("fetch", 1)], &[("delete", 1), ("pick", 2)]],
        Variant::AsksAndFails => &[&[("book", 1), ("note", 1)], &[("team", 1)], &[("close", 1)]],
        Variant::Answered => &[
            &[("note", 1), ("fetch", 1), ("fetch", 2)],
            &[("lock", 1), ("charge", 1), ("note", 2), ("lock", 2)],
            &[("flaky", 1), ("delete", 1), ("fetch", 3), ("delete", DENIED)],
            &[("book", 1), ("charge", 2), ("pick", 3)],
        ],
        Variant::Talk => &[],
        Variant::Failed => {
            &[&[("book", 1), ("note", 1)], &[("lock", 1), ("book", 2), ("book", 3)], &[("close", 1)]]
        }
    }
}

/// Returns the effects of an undisturbed run, except for undo calls: the ids of the calls and their attempts.
pub(crate) fn scripted_effects(variant: Variant) -> Vec<(String, u32)> {
    let mut effects = Vec::new();
    for (level, prefix) in [(Level::Outer, "call"), (Level::Inner, "inner")] {
        for (turn, calls) in script(variant, level).iter().enumerate() {
            for (position, (name, n)) in calls.iter().enumerate() {
                let attempts: &[u32] = match *name {
                    "team" => &[],
                    "delete" if *n == DENIED => &[],
                    "flaky" => &[1, 2],
                    _ => &[1],
                };
                let id = format!("{prefix}_{turn}_{position}");
                effects.extend(attempts.iter().map(|attempt| (id.clone(), *attempt)));
            }
        }
    }
    effects.sort();
    effects
}

/// Returns the text of an undisturbed run with an answer.
pub(crate) fn scripted_text(variant: Variant, level: Level) -> String {
    let result = |(name, n): &(&str, u32)| match *name {
        "note" => format!("noted {n}"),
        "fetch" => format!("fetched {n}"),
        "lock" => format!("locked {n}"),
        "charge" => format!("charged {n}"),
        "flaky" => format!("tried {n}"),
        "pick" => format!("picked {n}"),
        "delete" if *n == DENIED => "the call was denied: no".to_owned(),
        "delete" => format!("deleted {n}"),
        "book" => format!("booked {n}"),
        "team" => scripted_text(variant, Level::Inner),
        other => panic!("{other}"),
    };
    match script(variant, level) {
        [] => "Good morning!".to_owned(),
        turns => turns.concat().iter().map(result).collect::<Vec<_>>().join(", "),
    }
}

/// A model whose reply depends on the request alone, so that another life continues where the last one ended.
struct Model {
    world: World,
    variant: Variant,
    level: Level,
}

impl ChatModel for Model {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move {
            self.world.pass().await;
            let messages = request.messages();
            assert_valid(messages);
            let question = messages.iter().rposition(|one| matches!(one, Message::User(_))).unwrap();
            assert_eq!(messages[question].text(), QUESTION);
            let behind = &messages[question + 1..];
            let turn = behind.iter().filter(|one| one.as_assistant().is_some()).count();
            let prefix = if self.level == Level::Inner { "inner" } else { "call" };
            let reply = match script(self.variant, self.level).get(turn) {
                Some(calls) => {
                    let calls = calls.iter().enumerate().map(|(position, (name, n))| {
                        let arguments = match *name {
                            "team" => format!(r#"{{"question": "{QUESTION}"}}"#),
                            _ => format!(r#"{{"n": {n}}}"#),
                        };
                        ToolCall::new(format!("{prefix}_{turn}_{position}"), *name, arguments)
                    });
                    AssistantMessage::default().with_tool_calls(calls)
                }
                None if turn == 0 => AssistantMessage::text("Good morning!"),
                None => {
                    let results = behind.iter().filter(|one| matches!(one, Message::Tool(_)));
                    let results: Vec<_> = results.map(Message::text).collect();
                    AssistantMessage::text(results.join(", "))
                }
            };
            self.world.pass().await;
            Ok(ChatResponse::new(reply))
        })
    }
}

/// A store before, during and after whose operations a life may end.
struct Mortal {
    store: AnyStore,
    world: World,
}

impl Mortal {
    fn through<'a, T: Send + 'a>(&'a self, mut work: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        Box::pin(async move {
            self.world.pass().await;
            // The operation has been submitted; whether it is executed is open if the life ends here.
            let done = poll_fn(|context| Poll::Ready(work.poll_unpin(context))).await;
            self.world.pass().await;
            let done = match done {
                Poll::Ready(done) => done,
                Poll::Pending => work.await,
            };
            self.world.pass().await;
            done
        })
    }
}

impl ChatStore for Mortal {
    fn load<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Message>> {
        self.through(self.store.load(id))
    }

    fn append<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()> {
        self.through(self.store.append(id, messages))
    }

    fn clear<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, ()> {
        self.through(self.store.clear(id))
    }

    fn conversations(&self) -> StoreFuture<'_, Vec<ConversationId>> {
        self.through(self.store.conversations())
    }
}

impl RunStore for Mortal {
    fn append_run<'a>(
        &'a self,
        id: &'a str,
        expected: Option<&'a RunRevision>,
        changes: &'a RunChanges,
    ) -> StoreFuture<'a, SaveOutcome> {
        self.through(self.store.append_run(id, expected, changes))
    }

    fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>> {
        self.through(self.store.load_run(id))
    }

    fn entries<'a>(
        &'a self,
        id: &'a str,
        after: Option<u64>,
        limit: usize,
    ) -> StoreFuture<'a, Option<RunLog>> {
        self.through(self.store.entries(id, after, limit))
    }

    fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()> {
        self.through(self.store.remove_run(id))
    }

    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
        self.through(self.store.list_runs(filter))
    }
}

/// Builds the agent of one life. Its model, tools and memory are new; only the store outlives a life.
pub(crate) fn agent(variant: Variant, store: &AnyStore, world: &World) -> Agent {
    let mortal = || Mortal { store: store.clone(), world: world.clone() };
    let (approving, answering, watching) = (world.clone(), world.clone(), world.clone());
    let builder = |level: Level| {
        Agent::builder(Model { world: world.clone(), variant, level })
            .instructions("Follow the instructions.")
            .tools(tools![note, fetch, lock, charge, flaky, delete, pick, book, close])
            .undo_tools(tools![cancel])
            .memory(ChatMemory::new(mortal()))
    };
    let team = builder(Level::Inner).build().unwrap().as_tool("team", "Does the work");
    builder(Level::Outer)
        .tools(team.pass_context::<World>().own_conversation())
        .context(world.clone())
        .run_store(mortal())
        .decider(on_approval(move |call| {
            approving.pass_now();
            let is_denied = call.arguments.contains(&format!(": {DENIED}}}"));
            if is_denied { Decision::deny("no") } else { Decision::approve() }
        }))
        .decider(on_question(move |question| {
            answering.pass_now();
            Decision::answer(question.text())
        }))
        .on_event(move |_| watching.pass_now())
        .build()
        .unwrap()
}
