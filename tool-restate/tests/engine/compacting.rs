//! Compactions.

use std::sync::{Arc, Mutex};

use tool_core::agent::Compaction;
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ModelError, ModelErrorKind};
use tool_core::provider::ModelFuture;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ChatModel, Event, ToolCall, tool, tools};
use tool_restate::Worker;

use crate::agents::describe_answer;
use crate::support::{Mortal, agent, answer, free_address, register_at, serve, unique, until};

#[tool("Looks an order up")]
fn look_up(order: u32) -> String {
    format!("order {order} is paid")
}

#[tool("Reads a page", pure)]
fn read(page: u32) -> String {
    format!("page {page}, secret {}\n{}", page * 7919, "lorem ipsum dolor\n".repeat(200))
}

/// A compaction is recorded before the model is asked, and what it hides can be read on any worker.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn long_runs_are_compacted_as_in_one_process() {
    let model = || {
        ScriptedModel::new()
            .calls("read", r#"{"page": 1}"#)
            .calls("read", r#"{"page": 2}"#)
            .calls("read_output", r#"{"search": "secret"}"#)
            .calls("look_up", r#"{"order": 1}"#)
            .says("Read.")
    };
    let reader = |name: &str| {
        let compaction = Compaction::when_it_pays().at_tokens(1_500).keep_recent_tokens(1_000);
        Agent::builder(model())
            .name(name)
            .tools(tools![read, look_up])
            .compaction(compaction)
            .build()
            .unwrap()
    };
    let expected = reader("here").ask("Read").await.unwrap();
    assert!(expected.tool_executions()[2].to_string().contains("page 1, secret 7919"));
    for is_local in [false, true] {
        let name = unique("reader");
        let worker = Worker::new().agent(reader(&name));
        let _worker = serve(if is_local { worker.local_calls() } else { worker }).await;
        let run = agent(&name).ask("Read").send().await.unwrap();
        assert_eq!(describe_answer(&answer(&run).await), describe_answer(&expected));
    }
}

#[tool("Looks up a contract", keep_output)]
fn contract(id: u32) -> String {
    format!("contract {id}: {}", "clause ".repeat(600))
}

/// Reads two contracts, and summarizes. Behind the summary, it fails once, and then hangs until its worker dies.
#[derive(Clone)]
struct Reader {
    /// Requests with more characters are refused.
    limit: usize,
    asked: Arc<Mutex<Vec<&'static str>>>,
}

impl Reader {
    /// Returns the number of times that this has happened before.
    fn record(&self, what: &'static str) -> usize {
        let mut asked = self.asked.lock().unwrap();
        asked.push(what);
        asked.iter().filter(|one| **one == what).count() - 1
    }
}

impl ChatModel for Reader {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move {
            let texts: Vec<_> = request.messages().iter().map(|one| one.text().into_owned()).collect();
            let says = |text: &str| Ok(ChatResponse::new(AssistantMessage::text(text)));
            if texts.last().unwrap().contains("Summarize this") {
                self.record("summary");
                return says("There were two contracts.");
            }
            if texts.iter().map(String::len).sum::<usize>() > self.limit {
                self.record("refused");
                return Err(ModelError::new("it is too long").with_kind(ModelErrorKind::ContextLength));
            }
            if !texts.iter().any(|text| text.contains("There were two contracts.")) {
                let id = self.record("asked") + 1;
                let call = ToolCall::new(format!("call_{id}"), "contract", format!(r#"{{"id": {id}}}"#));
                return Ok(ChatResponse::new(AssistantMessage::default().with_tool_calls([call])));
            }
            match self.record("compacted") {
                0 => Err(ModelError::new("it is overloaded")),
                1 => std::future::pending().await,
                _ => says("Read."),
            }
        })
    }
}

/// A compaction is recorded before the request that follows it, so a repeated request pays for no second summary, nor for another one that
/// is refused.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_run_is_summarized_once() {
    let options = || Compaction::when_it_pays().keep_recent_tokens(1_000);
    let by_mark = ["asked", "asked", "summary", "compacted", "compacted", "compacted"];
    let too_long = ["asked", "asked", "refused", "summary", "compacted", "compacted", "compacted"];
    let cases = [(options().at_tokens(1_500), usize::MAX, &by_mark[..]), (options(), 6_000, &too_long)];
    for (compaction, limit, expected) in cases {
        let (name, address) = (unique("reader"), free_address());
        let model = Reader { limit, asked: Arc::default() };
        let reader = Agent::builder(model.clone()).name(&*name).tools(tools![contract]);
        let reader = reader.compaction(compaction.summarize_with(model.clone())).build().unwrap();
        let worker = || Worker::new().agent(reader.clone());
        let first = Mortal::start(worker(), address).await;
        register_at(address).await;
        let run = agent(&name).ask("Read both").events().send().await.unwrap();
        let has_hung = || model.asked.lock().unwrap().len() + 1 >= expected.len();
        until("the second request behind the summary", has_hung).await;
        drop(first);
        let _second = Mortal::start(worker(), address).await;
        assert_eq!(answer(&run).await.text(), "Read.");
        assert_eq!(*model.asked.lock().unwrap(), expected);
        let (mut events, mut compactions) = (run.events(0), 0);
        while let Some(record) = events.next().await.unwrap() {
            compactions += usize::from(matches!(record.event, Event::Compacted { .. }));
        }
        assert_eq!(compactions, 1);
    }
}

/// The call that orders a compaction is executed on any worker, and the next turn follows it.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn the_model_orders_a_compaction() {
    for is_local in [false, true] {
        let name = unique("reader");
        let calls =
            [("contract", r#"{"id": 1}"#), ("contract", r#"{"id": 2}"#), ("compact_conversation", "{}")];
        let model =
            calls.into_iter().fold(ScriptedModel::new(), |model, (tool, json)| model.calls(tool, json));
        let reader = Agent::builder(model.says("There were two contracts.").says("Read.")).name(&*name);
        let compaction = Compaction::when_it_pays().keep_recent_tokens(1_000).offer_tool();
        let reader = reader.tools(tools![contract]).compaction(compaction).build().unwrap();
        let worker = Worker::new().agent(reader);
        let _worker = serve(if is_local { worker.local_calls() } else { worker }).await;
        let run = agent(&name).ask("Read both").send().await.unwrap();
        // The reply before is the summary.
        assert_eq!(answer(&run).await.text(), "Read.");
    }
}
