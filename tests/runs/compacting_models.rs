//! Compaction by what the model can do: its window, and the tools that it is offered.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tool_core::agent::Compaction;
use tool_core::memory::InMemoryStore;
use tool_core::model::{
    AssistantMessage, ChatRequest, ChatResponse, Fallback, Message, ModelError, ModelOptions, ToolChoice,
};
use tool_core::provider::{ModelFuture, ModelInfo};
use tool_core::testing::ScriptedModel;
use tool_core::toolset::{ToolProvider, ToolProviderFuture, ToolProviderRequest};
use tool_core::{Agent, ChatModel, FunctionTool, ToolCall, ToolSet, tool, tools};

#[tool("Looks up a contract", keep_output)]
fn contract(id: u32) -> String {
    format!("contract {id}: {}", "clause ".repeat(600))
}

/// Looks up contracts and then answers, and summarizes if it is asked to.
#[derive(Clone, Default)]
struct Model {
    turns: usize,
    window: Option<u64>,
    /// How often the provider was asked for the window.
    asked: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<Vec<Message>>>>,
    choices: Arc<Mutex<Vec<ToolChoice>>>,
}

impl ChatModel for Model {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move {
            let messages = request.messages();
            if messages.last().unwrap().text().starts_with("Summarize this") {
                self.choices.lock().unwrap().push(request.tool_choice().clone());
                return Ok(ChatResponse::new(AssistantMessage::text("They were read.")));
            }
            let mut requests = self.requests.lock().unwrap();
            requests.push(messages.to_vec());
            let turn = requests.len();
            Ok(ChatResponse::new(match turn <= self.turns {
                true => AssistantMessage::default().with_tool_calls([ToolCall::new(
                    "",
                    "contract",
                    format!(r#"{{"id": {turn}}}"#),
                )]),
                false => AssistantMessage::text("Done. ".repeat(1_500)),
            }))
        })
    }

    fn model_name(&self) -> Option<&str> {
        Some("m")
    }

    fn model_info(&self) -> ModelFuture<'_, Option<ModelInfo>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {
            let window = self.window.ok_or_else(|| ModelError::new("down"))?;
            let mut info = ModelInfo::default();
            info.context_window = Some(window);
            Ok(Some(info))
        })
    }
}

/// The provider states its window, and is asked for it once, and not before there is something to hide.
#[tokio::test]
async fn a_run_is_compacted_at_the_window_that_the_provider_states() {
    for (window, turns, asked, is_compacted) in [
        (Some(5_000), 12, 1, true),
        (Some(500_000), 12, 1, false),
        (None, 12, 1, false),
        (Some(5_000), 0, 0, false),
    ] {
        let model = Model { turns, window, ..Model::default() };
        let compaction = Compaction::when_it_pays().at_tokens(1_000_000).keep_recent_tokens(1_000);
        let agent = Agent::builder(model.clone()).tools(tools![contract]).compaction(compaction);
        let agent = agent.limits(|l| l.max_turns(50)).build().unwrap();
        let mut driver = agent.ask("Read all contracts").start();
        while driver.advance().await.unwrap() {}
        let compactions = driver.run().compactions().len();
        assert_eq!(
            (compactions > 0, model.asked.load(Ordering::Relaxed)),
            (is_compacted, asked),
            "{window:?}"
        );
        // One that cannot be asked now is asked by the next run.
        if window.is_none() {
            model.requests.lock().unwrap().clear();
            agent.ask("Read all contracts").await.unwrap();
            assert_eq!(model.asked.load(Ordering::Relaxed), 2);
        }
    }
}

/// The smallest window of several models counts, and a model states nothing of another one that a run asks.
#[tokio::test]
async fn a_run_is_compacted_at_the_window_of_what_it_asks() {
    let model = |window| Model { turns: 12, window: Some(window), ..Model::default() };
    let compaction = || Compaction::when_it_pays().at_tokens(1_000_000).keep_recent_tokens(1_000);
    for (window, name, is_compacted) in
        [(5_000, None, true), (500_000, None, false), (5_000, Some("other"), false)]
    {
        let both = Fallback::new(model(500_000)).or(model(window));
        let mut options = ModelOptions::default();
        options.model = name.map(str::to_owned);
        let agent = Agent::builder(both).options(options).tools(tools![contract]).compaction(compaction());
        let agent = agent.limits(|l| l.max_turns(50)).build().unwrap();
        let mut driver = agent.ask("Read all contracts").start();
        while driver.advance().await.unwrap() {}
        assert_eq!(driver.run().compactions().is_empty(), !is_compacted, "{window} {name:?}");
    }
}

/// A model that is offered no tools is not told to search with one.
#[tokio::test]
async fn a_model_without_tools_is_told_of_none() {
    for has_tools in [false, true] {
        let (model, store) = (Model::default(), InMemoryStore::new());
        let compaction = Compaction::when_it_pays().at_tokens(1_000).keep_recent_tokens(100);
        let agent = Agent::builder(model.clone()).compaction(compaction).memory(store);
        let agent = if has_tools { agent.tools(tools![contract]) } else { agent };
        let agent = agent.build().unwrap();
        for question in ["Look them up", "Are you sure?", "Really?"] {
            agent.ask(question).conversation("c").await.unwrap();
        }
        let last = model.requests.lock().unwrap().pop().unwrap();
        let summary = last.iter().find(|message| message.text().contains("They were read.")).unwrap();
        assert_eq!(summary.text().contains("read_output"), has_tools, "{}", summary.text());
    }
}

/// What the model must not call, it need not call in a summary either; what it must call, it must not.
#[tokio::test]
async fn a_summary_calls_nothing() {
    for (choice, expected) in [
        (ToolChoice::None, ToolChoice::None),
        (ToolChoice::Auto, ToolChoice::Auto),
        (ToolChoice::Required, ToolChoice::Auto),
    ] {
        let model = Model::default();
        let compaction = Compaction::when_it_pays().at_tokens(1_000).keep_recent_tokens(100);
        let agent = Agent::builder(model.clone()).compaction(compaction).memory(InMemoryStore::new());
        let agent = agent.tools(tools![contract]).build().unwrap();
        for question in ["Look them up", "Are you sure?"] {
            agent.ask(question).conversation("c").await.unwrap();
        }
        let _required = agent.ask("Really?").conversation("c").tool_choice(choice).await;
        assert_eq!(*model.choices.lock().unwrap(), [expected]);
    }
}

/// No other tool has the name of the one that reads what was hidden: the agent's own are refused, and those of others are left out.
#[tokio::test]
async fn the_name_of_the_reader_is_reserved() {
    struct Server;
    impl ToolProvider for Server {
        fn tools<'a>(&'a self, _: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
            Box::pin(async { Ok(ToolSet::default().with(FunctionTool::new("read_output", || "theirs"))?) })
        }

        fn has_untrusted_names(&self) -> bool {
            true
        }
    }
    for is_compacted in [false, true] {
        let agent = |model: ScriptedModel| match is_compacted {
            true => Agent::builder(model).compaction(Compaction::when_it_pays()),
            false => Agent::builder(model),
        };
        let own = agent(ScriptedModel::new()).tools(FunctionTool::new("read_output", || "mine")).build();
        let error = own.err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(error.starts_with("two tools are named `read_output`"), is_compacted, "{error}");
        let model = ScriptedModel::new()
            .expects(move |request| {
                request.tools().iter().any(|one| one.name() == "read_output") != is_compacted
            })
            .says("Done.");
        let agent = agent(model).tool_provider(Server).build().unwrap();
        assert_eq!(agent.ask("Go").await.unwrap().text(), "Done.");
    }
}
