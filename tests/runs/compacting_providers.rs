//! Compaction by providers whose summaries have no text, and what other models read then.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tool_core::agent::{AgentBuilder, Compaction};
use tool_core::layer::rewrite;
use tool_core::memory::InMemoryStore;
use tool_core::model::{
    AssistantMessage, ChatRequest, ChatResponse, ConversationId, Fallback, FinishReason, Message, ModelError,
    ModelErrorKind, Usage,
};
use tool_core::provider::{JsonText, ModelFuture, ProviderData};
use tool_core::run::Run;
use tool_core::store::{ChatStore, CompactionSummary};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ChatModel, ToolCall, tool, tools};

#[tool("Looks up a contract", keep_output)]
fn contract(id: u32) -> String {
    format!("contract {id}: {}", "clause ".repeat(600))
}

#[tool("Sends a parcel", at_most_once, keep_output)]
fn send(chars: usize) -> String {
    "x".repeat(chars)
}

#[derive(Clone, Copy)]
enum Reply {
    /// Calls of a tool with a number: how many, and the first number.
    Calls(&'static str, usize, usize),
    Says(&'static str),
    /// A summary without a text, of so many tokens.
    Compacts(u64),
    TooLong,
    Invalid,
    Down,
}
use Reply::{Calls, Compacts, Down, Invalid, Says, TooLong};

type Requests = Vec<(bool, Vec<Message>)>;

/// Replies in turn. Its provider summarizes in a form that only models of one address read.
#[derive(Clone)]
struct Model {
    /// The address of its summaries, and the one whose summaries it reads.
    addresses: [&'static str; 2],
    replies: Arc<Mutex<VecDeque<Reply>>>,
    /// The messages of each request, and whether it was to summarize.
    requests: Arc<Mutex<Requests>>,
}

impl Model {
    fn new(address: &'static str, replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies = Arc::new(Mutex::new(replies.into_iter().collect()));
        Self { addresses: [address; 2], replies, requests: Arc::default() }
    }

    fn last(&self) -> Vec<Message> {
        self.requests.lock().unwrap().last().unwrap().1.clone()
    }

    fn compacting(&self) -> usize {
        self.requests.lock().unwrap().iter().filter(|(is_compaction, _)| *is_compaction).count()
    }
}

impl ChatModel for Model {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move {
            self.requests.lock().unwrap().push((request.is_compaction(), request.messages().to_vec()));
            let reply = self.replies.lock().unwrap().pop_front().expect("no request is expected");
            let mut message = AssistantMessage::default();
            let kind = match reply {
                Calls(tool, count, number) => {
                    let name = if tool == "send" { "chars" } else { "id" };
                    let call = |at| ToolCall::new("", tool, format!(r#"{{"{name}": {}}}"#, number + at));
                    return Ok(ChatResponse::new(message.with_tool_calls((0..count).map(call))));
                }
                Says(text) => return Ok(ChatResponse::new(AssistantMessage::text(text))),
                Compacts(tokens) => {
                    let data = JsonText::serialize(&tokens).unwrap();
                    message.provider_data = Some(ProviderData::new(self.addresses[0], data));
                    let mut response = ChatResponse::new(message);
                    response.usage = Some(Usage::new(1, tokens));
                    return Ok(response.with_finish_reason(FinishReason::Compaction));
                }
                TooLong => ModelErrorKind::ContextLength,
                Invalid => ModelErrorKind::InvalidRequest,
                Down => ModelErrorKind::Other,
            };
            Err(ModelError::new("it failed").with_kind(kind))
        })
    }

    fn supports_compaction(&self) -> bool {
        true
    }

    fn reads_summary(&self, summary: &AssistantMessage) -> bool {
        summary.provider_data.as_ref().is_some_and(|data| data.provider() == self.addresses[1])
    }

    fn provider_name(&self) -> Option<&str> {
        Some("azure")
    }

    fn model_name(&self) -> Option<&str> {
        Some(self.addresses[0])
    }
}

fn compaction() -> Compaction {
    Compaction::when_it_pays().keep_recent_tokens(100)
}

fn built(model: impl ChatModel + 'static, compaction: Compaction) -> AgentBuilder {
    Agent::builder(model).tools(tools![contract, send]).compaction(compaction).limits(|l| l.max_turns(50))
}

/// Advances a run by so many turns.
async fn advanced(agent: &Agent, run: Run, turns: usize) -> Run {
    let mut driver = agent.resume(run).start();
    for _ in 0..2 * turns {
        assert!(driver.advance().await.unwrap());
    }
    driver.into_run()
}

/// Returns a run that has looked up three contracts, and whose provider has summarized the first ones.
async fn compacted(model: &Model) -> Run {
    model.replies.lock().unwrap().extend([
        Calls("contract", 1, 1),
        Calls("contract", 1, 2),
        Compacts(10),
        Calls("contract", 1, 3),
    ]);
    let agent = built(model.clone(), compaction()).build().unwrap();
    let question = format!("Look them up. {}The end.", "All of them matter. ".repeat(200));
    let run = advanced(&agent, agent.ask(&*question).start().into_run(), 2).await;
    let run = agent.compact(run).await.unwrap();
    assert_eq!(run.compactions().len(), 1);
    advanced(&agent, run, 1).await
}

/// A model that cannot read the summary in use reads the messages, and is compacted as if there were none. The summary of the other one has a
/// text, which the first one reads.
#[tokio::test]
async fn a_model_reads_the_messages_rather_than_nothing() {
    let first = Model::new("a", []);
    let run = compacted(&first).await;
    let second = Model::new("b", [Says("One."), Down, Says("They were looked up."), Says("Two.")]);
    let other = built(second.clone(), compaction()).build().unwrap();
    let copy = serde_json::from_value(serde_json::to_value(&run).unwrap()).unwrap();
    assert_eq!(other.resume(copy).await.unwrap().text(), "One.");
    assert_eq!(second.last(), run.messages());
    let run = other.compact(run).await.unwrap();
    let hidden: Vec<_> = run.compactions().iter().map(|one| one.summarized_messages()).collect();
    assert_eq!(hidden, [3, 5]);
    let copy = serde_json::from_value(serde_json::to_value(&run).unwrap()).unwrap();
    assert_eq!(other.resume(copy).await.unwrap().text(), "Two.");
    first.replies.lock().unwrap().push_back(Says("Three."));
    let agent = built(first.clone(), compaction()).build().unwrap();
    assert_eq!(agent.resume(run).await.unwrap().text(), "Three.");
    assert_eq!(first.last(), second.last());
    assert!(first.last()[1].text().contains("They were looked up."));
}

/// Another model that summarizes reads all that it can: the messages behind a summary without a text, and what people wrote in full.
#[tokio::test]
async fn another_model_summarizes_what_only_the_provider_has_read() {
    let model = Model::new("a", []);
    let run = compacted(&model).await;
    model.replies.lock().unwrap().push_back(Down);
    let cheap = ScriptedModel::new()
        .expects(|request| {
            let text = request.messages()[0].text();
            let ids = [1, 2, 3].map(|id| text.matches(&format!("contract {id}: clause")).count());
            ids == [1, 1, 1] && text.contains("The end.") && text.len() < 12_000
        })
        .says("They were looked up.");
    let agent = built(model.clone(), compaction().summarize_with(cheap)).build().unwrap();
    let run = agent.compact(run).await.unwrap();
    assert!(run.compactions()[1].summary().unwrap().contains("They were looked up."));
}

/// A summary that only its provider reads stays, also if the messages behind it are removed without one.
#[tokio::test]
async fn a_request_that_is_too_long_leaves_the_summary_of_the_provider() {
    let model = Model::new("a", []);
    let run = compacted(&model).await;
    let summary = model.last()[0].clone();
    model.replies.lock().unwrap().extend([TooLong, Says("Done.")]);
    let agent = built(model.clone(), compaction()).build().unwrap();
    let length = run.messages().len();
    assert_eq!(agent.resume(run).await.unwrap().text(), "Done.");
    let last = model.last();
    assert_eq!((&last[0], last.len()), (&summary, 4));
    assert!(last[1].text().starts_with("Earlier messages of this conversation were removed"), "{last:?}");
    assert_eq!(length, 7);
}

/// A stored summary whose form cannot be restored stands for nothing: the next question reads the messages.
#[tokio::test]
async fn a_summary_that_cannot_be_restored_is_not_read() {
    for (by_provider, expected) in [(Some("{"), 3), (None, 4)] {
        let (store, id) = (InMemoryStore::new(), ConversationId::new("c"));
        store.append(&id, &[Message::user("Really?"), Message::assistant("Yes.")]).await.unwrap();
        let (text, details) = ("They were looked up.".to_owned(), by_provider.map(str::to_owned));
        let summary = CompactionSummary { messages: 1, text, details };
        store.store_summary(&id, &summary).await.unwrap();
        let model = Model::new("a", [Says("Done.")]);
        let agent = built(model.clone(), compaction()).memory(store).build().unwrap();
        agent.ask("And now?").conversation(id).await.unwrap();
        assert_eq!(model.last().len(), expected, "{:?}", model.last());
    }
}

/// What must not be repeated is part of what a summary of the provider costs, and is short, because it is never summarized.
#[tokio::test]
async fn notes_of_calls_count_and_are_short() {
    for (calls, chars, tokens, is_recorded) in
        [(40, 40, 300, false), (40, 40, 10, true), (40, 400, 300, true)]
    {
        let model =
            Model::new("a", [Calls("send", calls, chars), Calls("contract", 1, 1), Compacts(tokens), Down]);
        let agent = built(model.clone(), compaction()).build().unwrap();
        let run = advanced(&agent, agent.ask("Send all").start().into_run(), 2).await;
        let run = agent.compact(run).await.unwrap();
        assert_eq!(run.compactions().len(), usize::from(is_recorded), "{chars} {tokens}");
        if is_recorded {
            *model.replies.lock().unwrap() = [Says("Done.")].into();
            agent.resume(run).await.unwrap();
            let note = model.last()[1].text().into_owned();
            assert!(note.contains("must not be repeated") && note.len() < 5_000, "{note}");
        }
    }
}

/// A provider whose summaries the models do not read, or that refuses, is asked once in a run, and one whose summaries a layer changes, too.
#[tokio::test]
async fn a_provider_that_cannot_summarize_is_asked_once() {
    let read_by_no_other = || {
        let model = Model::new("a", []);
        (Model { addresses: ["a", "b"], ..model.clone() }, Model { addresses: ["b"; 2], ..model })
    };
    for reply in [Compacts(10), Invalid, Says("A summary")] {
        let (first, second) = read_by_no_other();
        let turns = (1..).flat_map(|turn| [Calls("contract", 1, turn), Calls("contract", 1, turn + 50)]);
        let mut replies: VecDeque<_> = turns.take(10).collect();
        replies.extend([
            reply,
            Says("They were looked up."),
            Calls("contract", 1, 99),
            Calls("contract", 1, 98),
        ]);
        replies.extend([Says("They were looked up again."), Says("Done.")]);
        *first.replies.lock().unwrap() = replies;
        let agent = built(Fallback::new(first.clone()).or(second), compaction()).build().unwrap();
        let mut run = advanced(&agent, agent.ask("Look them up").start().into_run(), 10).await;
        run = agent.compact(run).await.unwrap();
        run = advanced(&agent, run, 2).await;
        run = agent.compact(run).await.unwrap();
        assert_eq!(run.compactions().len(), 2);
        assert_eq!(agent.resume(run).await.unwrap().text(), "Done.");
        assert_eq!(first.compacting(), 1);
    }
}

/// A refusal counts once, and for one model.
#[tokio::test]
async fn a_provider_that_refuses_says_nothing_of_the_next_model() {
    let summary = Says("They were looked up.");
    let first = Model::new("a", [Calls("contract", 1, 1), Calls("contract", 1, 2), Invalid, summary]);
    let agent = built(first.clone(), compaction()).build().unwrap();
    let run = advanced(&agent, agent.ask("Look them up").start().into_run(), 2).await;
    let mut run = agent.compact(run).await.unwrap();
    let second = Model::new("b", []);
    let agent = built(second.clone(), compaction()).build().unwrap();
    for replies in [&[Down, summary][..], &[Compacts(10)]] {
        second.replies.lock().unwrap().extend([Calls("contract", 1, 3), Calls("contract", 1, 4)]);
        second.replies.lock().unwrap().extend(replies);
        run = advanced(&agent, run, 2).await;
        run = agent.compact(run).await.unwrap();
    }
    assert_eq!((first.compacting(), second.compacting(), run.compactions().len()), (1, 2, 3));
}

/// A layer that changes the summary of a provider changes the next one, too.
#[tokio::test]
async fn a_provider_whose_summary_is_changed_is_asked_once() {
    #[derive(Clone)]
    struct Reading(Model);
    impl ChatModel for Reading {
        fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
            Box::pin(async move {
                let response = self.0.chat(request).await?;
                Ok(match request.is_compaction() {
                    true => response.with_finish_reason(FinishReason::Compaction),
                    false => response,
                })
            })
        }

        fn supports_compaction(&self) -> bool {
            true
        }

        fn reads_summary(&self, _: &AssistantMessage) -> bool {
            true
        }
    }
    let model = Model::new(
        "a",
        [
            Calls("contract", 1, 1),
            Calls("contract", 1, 2),
            Says("The secret is 7."),
            Says("They were looked up."),
            Calls("contract", 1, 3),
            Calls("contract", 1, 4),
            Says("They were looked up again."),
        ],
    );
    let hides = rewrite::output(|_, output| output.to_string().replace("7", "[number]"));
    let agent = built(Reading(model.clone()), compaction()).layer(hides).build().unwrap();
    let run = advanced(&agent, agent.ask("Look them up").start().into_run(), 2).await;
    let run = agent.compact(run).await.unwrap();
    let run = advanced(&agent, run, 2).await;
    let run = agent.compact(run).await.unwrap();
    assert_eq!((model.compacting(), run.compactions().len()), (1, 2));
}
