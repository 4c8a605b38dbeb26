//! Misbehaving tools and models. A run ends as its policy says, whether it is awaited, streamed or driven step by step;
//! its conversation is valid for an API; and a memory stores all messages of a run with an answer and none of any other
//! run.

mod conversations;
mod fuzz;
mod models;
mod nested;
mod stopped;
mod tools;
pub(crate) mod tree;
mod trees;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tests::support::ways::{self, assert_valid};
use tool_core::agent::AgentBuilder;
use tool_core::memory::InMemoryStore;
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ConversationId, ModelError};
use tool_core::provider::ModelFuture;
use tool_core::store::ChatStore;
use tool_core::{Answer, ChatMemory, ChatModel, Message, RunError, SqliteStore, ToolCall};

type Outcome = Result<Answer, RunError>;

/// A model whose reply depends on the request alone, so that it continues wherever a run is resumed.
#[derive(Clone)]
struct Puppet(Arc<Reply>);

/// Returns the reply for a turn of the run, counted from 0.
type Reply = dyn Fn(usize, &ChatRequest<'_>) -> Result<ChatResponse, ModelError> + Send + Sync;

impl Puppet {
    fn new(
        reply: impl Fn(usize, &ChatRequest<'_>) -> Result<ChatResponse, ModelError> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(reply))
    }

    /// Creates a model that requests these calls in each turn, and replies with a text when there are none.
    fn calling(calls: impl Fn(usize) -> Vec<ToolCall> + Send + Sync + 'static) -> Self {
        Self::new(move |turn, _| Ok(reply(calls(turn))))
    }
}

impl ChatModel for Puppet {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let messages = request.messages();
        assert_valid(messages);
        let asked = messages.iter().rposition(|message| matches!(message, Message::User(_))).unwrap();
        let replies = messages[asked..].iter().filter(|message| message.as_assistant().is_some());
        let reply = (self.0)(replies.count(), request);
        Box::pin(async move { reply })
    }
}

/// Returns a reply with these calls, or with a text if there are none.
fn reply(calls: Vec<ToolCall>) -> ChatResponse {
    let text = if calls.is_empty() { "That was all." } else { "" };
    ChatResponse::new(AssistantMessage::text(text).with_tool_calls(calls))
}

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall::new(id, name, arguments)
}

fn conversation() -> ConversationId {
    ConversationId::new("user-7")
}

fn history() -> Vec<Message> {
    vec![Message::user("Hello"), Message::assistant("Good morning!")]
}

/// Returns a memory of each kind, with a history in it.
async fn memories() -> Vec<ChatMemory> {
    let stores: [Box<dyn ChatStore>; 2] =
        [Box::new(InMemoryStore::new()), Box::new(SqliteStore::in_memory().await.unwrap())];
    let mut memories = Vec::new();
    for store in stores {
        let memory = ChatMemory::new(Arc::<dyn ChatStore>::from(store));
        memory.commit(&conversation(), &history()).await.unwrap();
        memories.push(memory);
    }
    memories
}

/// Returns the messages that a run added to its conversation.
fn added(outcome: &Outcome) -> &[Message] {
    match outcome {
        Ok(answer) => answer.new_messages(),
        Err(error) => error.run().new_messages(),
    }
}

/// Checks that the conversation is valid, is stored if there is an answer, and is not left open.
async fn assert_sound(outcome: &Outcome, memory: &ChatMemory) {
    assert_valid(added(outcome));
    let stored = memory.messages(&conversation()).await.unwrap();
    let (before, behind) = stored.split_at(history().len());
    assert_eq!(before, history());
    match outcome {
        Ok(answer) => assert_eq!(behind, answer.new_messages()),
        Err(_) => assert_eq!(behind, []),
    }
    let id = conversation();
    let open = tokio::time::timeout(std::time::Duration::from_secs(60), memory.open(&id)).await;
    assert!(open.expect("the conversation is free").is_ok());
}

/// Runs a case in all three ways with each memory, all of them at once, and checks that the outcomes are equal.
async fn in_all_ways(build: impl Fn() -> AgentBuilder) -> Outcome {
    let no_approval = |_: &ToolCall| panic!("no call needs approval");
    let run = async |way, memory: ChatMemory| {
        let agent = build().memory(memory.clone()).context(conversation()).build().unwrap();
        let outcome = match way {
            0 => ways::await_it(&agent, "What now?", no_approval).boxed_local().await,
            1 => ways::stream_it(&agent, "What now?", no_approval).boxed_local().await,
            _ => ways::drive_it(&agent, "What now?", no_approval).boxed_local().await,
        };
        assert_sound(&outcome, &memory).await;
        outcome
    };
    let mut runs = Vec::new();
    for way in 0..3 {
        runs.extend(memories().await.into_iter().map(|memory| run(way, memory)));
    }
    let mut outcomes = join_all(runs).await;
    let expected = ways::summary(&outcomes[0]);
    for outcome in &outcomes {
        assert_eq!(expected, ways::summary(outcome), "awaited, streamed and step by step, with each memory");
    }
    outcomes.swap_remove(0)
}
