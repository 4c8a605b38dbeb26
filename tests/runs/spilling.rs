//! Outputs that are too long for the model, stored beside the run.

use std::future::{IntoFuture, pending};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tests::support::stores::{postgres, run_ids};
use tokio::sync::Notify;
use tool_core::agent::{AgentBuilder, Compaction, OnDrop};
use tool_core::layer::{OutputVerdict, guard, rewrite};
use tool_core::memory::InMemoryStore;
use tool_core::model::ChatRequest;
use tool_core::provider::ModelFuture;
use tool_core::run::{Run, RunErrorKind, RunId};
use tool_core::store::{OutputStore, RunStore, StoreFuture};
use tool_core::testing::ScriptedModel;
use tool_core::{
    Agent, ChatModel, FunctionTool, Message, SqliteStore, ToolCall, ToolContext, ToolSet, tool, tools,
};

const LIMIT: usize = 1_000;

#[tool("Reads the log")]
fn log() -> String {
    format!("begin\n{}key=secret, disk full\n{}end", "ok\n".repeat(2_000), "ok\n".repeat(2_000))
}

/// Counts what happens to another store, and can fail.
#[derive(Clone, Default)]
struct Watched {
    store: InMemoryStore,
    stored: Arc<Mutex<Vec<(RunId, String, String)>>>,
    removed: Arc<Mutex<Vec<RunId>>>,
    failures: Arc<Mutex<usize>>,
}

impl OutputStore for Watched {
    fn store_output<'a>(&'a self, run: &'a RunId, call: &'a str, output: &'a str) -> StoreFuture<'a, ()> {
        let mut failures = self.failures.lock().unwrap();
        if *failures > 0 {
            *failures -= 1;
            return Box::pin(async { Err("the disk is full".into()) });
        }
        self.stored.lock().unwrap().push((run.clone(), call.to_owned(), output.to_owned()));
        self.store.store_output(run, call, output)
    }

    fn load_output<'a>(&'a self, run: &'a RunId, call: &'a str) -> StoreFuture<'a, Option<String>> {
        self.store.load_output(run, call)
    }

    fn remove_outputs<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, ()> {
        self.removed.lock().unwrap().push(run.clone());
        self.store.remove_outputs(run)
    }
}

fn agent(model: ScriptedModel, store: impl OutputStore + 'static) -> AgentBuilder {
    Agent::builder(model).tools(tools![log]).max_output_chars(LIMIT).output_store(store)
}

/// A limit that has no room for the hint is kept. The output can be read.
#[tokio::test]
async fn a_small_limit_is_kept() {
    #[tool("Reads the log", max_output_chars = 40)]
    fn short_log() -> String {
        log_text()
    }
    let model = ScriptedModel::new()
        .calls("short_log", "{}")
        .expects(|request| request.messages()[2].text().chars().count() <= 40)
        .calls("read_output", r#"{"id": "call_1_0", "search": "disk full"}"#)
        .expects(|request| request.messages()[4].text().contains("disk full"))
        .says("The disk is full.");
    let agent = agent(model, InMemoryStore::new()).tools(tools![short_log]).build().unwrap();
    agent.ask("What is wrong?").await.unwrap();
}

#[tokio::test]
async fn a_long_output_is_shortened_and_can_be_read() {
    let store = Watched::default();
    let model = ScriptedModel::new()
        .expects(|request| request.tools().iter().map(|tool| tool.name()).eq(["log", "read_output"]))
        .calls("log", "{}")
        .expects(|request| {
            let text = request.messages().last().unwrap().text().into_owned();
            text.starts_with("begin")
                && text.ends_with("end\n[`read_output` with the id `call_1_0` reads and searches all of it.]")
        })
        .calls("read_output", r#"{"id": "call_1_0", "search": "DISK"}"#)
        .calls("read_output", r#"{"id": "call_1_0", "from": 6006}"#)
        .calls("read_output", r#"{"id": "call_9_0"}"#)
        .calls("read_output", r#"{"search": "DISK"}"#)
        .says("The disk is full.");
    let answer = agent(model, store.clone()).build().unwrap().ask("What is wrong?").await.unwrap();
    assert_eq!(answer.text(), "The disk is full.");
    let outputs: Vec<_> = answer
        .new_messages()
        .iter()
        .filter_map(|message| match message {
            Message::Tool(result) => Some(result.content.to_string()),
            _ => None,
        })
        .collect();
    // The run has no more of it than the model has read.
    assert!(outputs.iter().all(|output| output.chars().count() <= LIMIT), "{outputs:?}");
    assert!(answer.tool_executions()[0].output().unwrap().omitted_chars().unwrap() > 11_000);
    assert!(outputs[1].contains("output call_1_0, character 6018: "), "{outputs:?}");
    let by_id = "nothing that was removed contains this; outputs that were shortened are searched by their `id` alone";
    assert_eq!(outputs[4], by_id);
    assert!(
        outputs[2].starts_with("characters 6006 to 6926 of 12031:\nkey=secret, disk full"),
        "{outputs:?}"
    );
    assert!(outputs[3].contains("nothing with the id `call_9_0` was removed"), "{outputs:?}");
    let stored = store.stored.lock().unwrap().clone();
    assert_eq!((stored.len(), &*stored[0].1, &stored[0].2), (1, "call_1_0", &log_text()));
    assert_eq!(*store.removed.lock().unwrap(), [stored[0].0.clone()]);
    assert_eq!(store.store.load_output(&stored[0].0, "call_1_0").await.unwrap(), None);
}

fn log_text() -> String {
    format!("begin\n{}key=secret, disk full\n{}end", "ok\n".repeat(2_000), "ok\n".repeat(2_000))
}

/// What layers took out is not stored, neither beside the run nor in it, and they see what is read again.
#[tokio::test]
async fn what_is_stored_has_passed_the_layers() {
    let store = Watched::default();
    let model = ScriptedModel::new()
        .calls("log", "{}")
        .calls("read_output", r#"{"id": "call_1_0", "search": "key"}"#)
        .says("Done.");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let reads = Arc::clone(&seen);
    let watches = guard::output(move |execution| {
        reads
            .lock()
            .unwrap()
            .push((execution.call().name.clone(), execution.output().unwrap().to_string().len()));
        OutputVerdict::Pass
    });
    let hides = rewrite::output(|_, output| output.to_string().replace("secret", "[key]"));
    let agent = agent(model, store.clone()).layer(hides).layer(watches).build().unwrap();
    let answer = agent.ask("What is wrong?").await.unwrap();
    assert!(
        store.stored.lock().unwrap().iter().all(|(_, _, output)| output.contains("key=[key], disk full"))
    );
    assert!(answer.tool_executions()[1].to_string().contains("key=[key], disk full"));
    // The whole output, then the piece.
    let seen = seen.lock().unwrap();
    assert_eq!(seen.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["log", "read_output"]);
    assert!(seen[0].1 > 12_000 && seen[1].1 < LIMIT, "{seen:?}");
    // The original is in the record of the call, as short as what the model reads.
    let state = serde_json::to_string(&answer).unwrap();
    assert!(state.len() < 8 * LIMIT, "{}", state.len());
}

/// An id of another run reads nothing, also in the same store.
#[tokio::test]
async fn outputs_of_other_runs_are_not_read() {
    let store = Watched::default();
    let inner = ScriptedModel::new()
        .calls("read_output", r#"{"id": "call_1_0"}"#)
        .calls("log", "{}")
        .calls("read_output", r#"{"id": "call_2_0", "search": "disk"}"#)
        .says("Inside.");
    let inner = agent(inner, store.clone()).build().unwrap();
    let outer = ScriptedModel::new()
        .calls("log", "{}")
        .calls("helper", r#"{"question": "Help"}"#)
        .calls("read_output", r#"{"id": "call_2_0"}"#)
        .says("Done.");
    let outer = agent(outer, store.clone()).tools(inner.as_tool("helper", "Helps")).build().unwrap();
    let answer = outer.ask("What is wrong?").await.unwrap();
    let inside = answer.inner_runs()[0].run().tool_executions();
    assert!(inside[0].to_string().contains("nothing with the id"), "{inside:?}");
    assert!(inside[2].to_string().contains("disk full"));
    assert!(answer.tool_executions()[2].to_string().contains("nothing with the id"));
    // Nothing is left of either run.
    let stored = store.stored.lock().unwrap().clone();
    for (run, call, _) in stored {
        assert_eq!(store.store.load_output(&run, &call).await.unwrap(), None);
    }
}

/// If an output cannot be stored, the run stops before the model reads it, and goes on once it can be.
#[tokio::test]
async fn a_store_that_fails_loses_nothing() {
    let store = Watched::default();
    *store.failures.lock().unwrap() = 1;
    let model = ScriptedModel::new()
        .calls("log", "{}")
        .calls("read_output", r#"{"id": "call_1_0", "search": "disk"}"#)
        .says("Done.");
    let agent = agent(model, store.clone()).build().unwrap();
    let error = agent.ask("What is wrong?").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Store(_)), "{error}");
    let answer = agent.resume(error.into_run()).await.unwrap();
    assert!(answer.tool_executions()[1].to_string().contains("disk full"));
    assert!(answer.new_messages()[2].text().chars().count() <= LIMIT);
    assert_eq!(store.stored.lock().unwrap().len(), 1);
}

/// Another process reads what this one has stored, and a run that is removed takes its outputs along.
#[tokio::test]
async fn outputs_outlive_the_process_and_not_the_run() {
    async fn check<S: OutputStore + RunStore + Clone + 'static>(store: S) {
        let model = ScriptedModel::new()
            .calls("log", "{}")
            .calls("read_output", r#"{"id": "call_1_0", "search": "disk"}"#)
            .says("Done.");
        let agent = agent(model, store.clone()).run_store(store.clone()).build().unwrap();
        let mut run: Run = agent.ask("What is wrong?").start().into_run();
        let id = run.id().clone();
        let mut has_stored = false;
        let answer = loop {
            let mut driver = agent.resume(run).start();
            if !driver.advance().await.unwrap() {
                break driver.finish().await.unwrap();
            }
            has_stored |= store.load_output(&id, "call_1_0").await.unwrap() == Some(log_text());
            run = serde_json::from_str(&serde_json::to_string(&driver.into_run()).unwrap()).unwrap();
        };
        assert!(has_stored && answer.tool_executions()[1].to_string().contains("disk full"));
        assert_eq!(store.load_output(&id, "call_1_0").await.unwrap(), None);
        // Removed from the store, without a driver.
        let mut run = Run::new([Message::user("Go")]);
        let id = run.id().clone();
        store.save_run(id.as_str(), &mut run).await.unwrap();
        store.store_output(&id, "a", "long").await.unwrap();
        store.store_output(&id, "a", "longer").await.unwrap();
        assert_eq!(store.load_output(&id, "a").await.unwrap().as_deref(), Some("longer"));
        store.remove_run(id.as_str()).await.unwrap();
        assert_eq!(store.load_output(&id, "a").await.unwrap(), None);
        // With those of the runs inside, of which only this run knows.
        let other = Run::new([Message::user("Go")]).id().clone();
        store.store_output(&other, "a", "long").await.unwrap();
        let inner = ScriptedModel::new().calls("log", "{}").calls("send", "{}");
        let inner = self::agent(inner, store.clone()).tools(tools![send]).build().unwrap();
        let outer = ScriptedModel::new().calls("helper", r#"{"question": "Help"}"#);
        let outer = Agent::builder(outer).tools(inner.as_tool("helper", "Helps")).run_store(store.clone());
        let run = outer.build().unwrap().ask("What is wrong?").await.unwrap_err().into_run();
        let inside = run.inner_runs().next().unwrap().run().id().clone();
        assert_eq!(store.load_output(&inside, "call_1_0").await.unwrap(), Some(log_text()));
        store.remove_run(run.id().as_str()).await.unwrap();
        assert_eq!(store.load_output(&inside, "call_1_0").await.unwrap(), None);
        assert!(store.load_output(&other, "a").await.unwrap().is_some());
    }
    check(InMemoryStore::new()).await;
    check(SqliteStore::in_memory().await.unwrap()).await;
    if let Some(postgres) = postgres().await {
        check(postgres).await;
    }
}

#[tool("Sends a mail", needs_approval)]
fn send() {}

/// The agents of one run use one store: one that takes the run over reads the outputs that are there, and all of them are removed.
#[tokio::test]
async fn outputs_of_a_run_are_in_one_store() {
    for (has_first, has_second) in [(true, true), (true, false), (false, true)] {
        let stores = [Watched::default(), Watched::default()];
        let built = |model: ScriptedModel, store: Option<&Watched>| {
            let agent = Agent::builder(model).tools(tools![log]);
            match store {
                Some(store) => agent.max_output_chars(LIMIT).output_store(store.clone()),
                None => agent,
            }
        };
        let id = if has_first { "call_1_0" } else { "call_3_0" };
        let billing = ScriptedModel::new()
            .calls("log", "{}")
            .calls("read_output", format!(r#"{{"id": "{id}", "search": "disk"}}"#))
            .says("Done.");
        let billing = built(billing, Some(&stores[1]).filter(|_| has_second)).build().unwrap();
        let desk = ScriptedModel::new().calls("log", "{}").calls("billing", "{}");
        let desk = built(desk, Some(&stores[0]).filter(|_| has_first));
        let desk = desk.handoff_to("billing", "Knows bills", &billing).build().unwrap();
        let answer = desk.ask("What is wrong?").await.unwrap();
        let read = answer.tool_executions().last().unwrap().to_string();
        assert!(read.contains("disk full"), "{has_first} {has_second}: {read}");
        let stored = stores.map(|store| {
            let stored = store.stored.lock().unwrap().clone();
            let removed = store.removed.lock().unwrap();
            assert!(stored.iter().all(|(run, ..)| removed.contains(run)), "{has_first} {has_second}");
            stored.len()
        });
        let expected =
            [usize::from(has_first) + usize::from(has_first && has_second), usize::from(!has_first)];
        assert_eq!(stored, expected, "{has_first} {has_second}");
    }
}

/// A shortened output that a compaction hides is still read whole.
#[tokio::test]
async fn a_hidden_output_is_read_whole() {
    #[tool("Reads a page", pure)]
    fn page(number: u32) -> String {
        format!("{}page {number}{}", "lorem ipsum ".repeat(500), "lorem ipsum ".repeat(500))
    }
    let model = ScriptedModel::new()
        .calls("page", r#"{"number": 1}"#)
        .calls("page", r#"{"number": 2}"#)
        .calls("page", r#"{"number": 3}"#)
        .expects(|request| request.messages()[2].text().contains("was removed to save room"))
        .calls("read_output", r#"{"id": "call_1_0", "search": "page"}"#)
        .says("Done.");
    let compaction = Compaction::when_it_pays().at_tokens(1_200).keep_recent_tokens(300);
    let agent = Agent::builder(model).tools(tools![page]).max_output_chars(2_000).compaction(compaction);
    let answer = agent.output_store(InMemoryStore::new()).build().unwrap().ask("Read").await.unwrap();
    assert!(answer.tool_executions()[3].to_string().contains("page 1"), "{}", answer.transcript());
}

/// What a tool's own limit, or that of its set, cuts is stored as well: as the layers have left it, whatever they make of it.
#[tokio::test]
async fn outputs_beyond_the_limit_of_a_tool_are_stored() {
    #[tool("Reads the log", name = "log", max_output_chars = 300)]
    fn declared() -> String {
        log_text()
    }
    let tools = || {
        let function = FunctionTool::new("log", log_text).description("Reads the log");
        let function = ToolSet::default().with(function.max_output_chars(300)).unwrap();
        let layer = rewrite::output(|_, output| output.to_string().replace("secret", "[key]"));
        [tools![declared], function, tools![log].max_output_chars(300), tools![declared].layer(layer)]
    };
    for (at, set) in tools().into_iter().enumerate() {
        // A caller of the set, also one within a call, reads what the limit leaves.
        let alone = set.call(&ToolCall::new("a", "log", "{}"), &ToolContext::new()).await.unwrap();
        assert!(alone.to_string().chars().count() <= 300, "{at}");
        let store = Watched::default();
        let model = ScriptedModel::new()
            .calls("log", "{}")
            .expects(|request| {
                let text = request.messages().last().unwrap().text().into_owned();
                text.starts_with("begin")
                    && text.ends_with("reads and searches all of it.]")
                    && text.len() <= 310
            })
            .calls("read_output", r#"{"id": "call_1_0", "search": "key"}"#)
            .says("The disk is full.");
        let hides = rewrite::output(|_, output| output.to_string().replace("secret", "[key]"));
        let agent = Agent::builder(model).tools(set).max_output_chars(LIMIT).output_store(store.clone());
        let answer = agent.layer(hides).build().unwrap().ask("What is wrong?").await.unwrap();
        assert!(answer.tool_executions()[1].to_string().contains("key=[key], disk full"), "{at}");
        let stored = store.stored.lock().unwrap().clone();
        assert_eq!((stored.len(), &stored[0].2), (1, &log_text().replace("secret", "[key]")), "{at}");
        // Neither the run nor its record of the original has more than the model has read.
        assert!(serde_json::to_string(&answer).unwrap().len() < 8 * LIMIT, "{at}");
    }
    // Without a store, the tool's own limit cuts.
    let model = ScriptedModel::new().calls("log", "{}").says("Done.");
    let agent = Agent::builder(model).tools(tools![declared]).build().unwrap();
    let answer = agent.ask("What is wrong?").await.unwrap();
    assert!(answer.new_messages()[2].text().chars().count() <= 300);
}

/// A layer of the set that leaves little of a long output leaves no more of it in the run.
#[tokio::test]
async fn a_run_stores_no_original_that_a_layer_of_the_set_shortened() {
    let model = ScriptedModel::new().calls("log", "{}").says("Done.");
    let layer = rewrite::output(|_, _| "nothing to see".to_owned());
    let agent = Agent::builder(model).tools(tools![log].layer(layer)).max_output_chars(LIMIT);
    let agent = agent.output_store(Watched::default()).build().unwrap();
    let answer = agent.ask("What is wrong?").await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "nothing to see");
    assert!(serde_json::to_string(&answer).unwrap().len() < 4 * LIMIT);
}

/// The tool's own limit holds in the process that goes on after the store has failed.
#[tokio::test]
async fn the_limit_of_a_tool_outlives_the_process() {
    let store = Watched::default();
    *store.failures.lock().unwrap() = 1;
    let model = ScriptedModel::new().calls("log", "{}").says("Done.");
    let agent = Agent::builder(model).tools(tools![log].max_output_chars(300)).max_output_chars(20_000);
    let agent = agent.output_store(store.clone()).build().unwrap();
    let failed = agent.ask("What is wrong?").await.unwrap_err().into_run();
    let run: Run = serde_json::from_str(&serde_json::to_string(&failed).unwrap()).unwrap();
    let answer = agent.resume(run).await.unwrap();
    assert!(answer.new_messages()[2].text().chars().count() <= 300);
    assert_eq!(store.stored.lock().unwrap()[0].2, log_text());
}

#[test]
fn an_agent_with_a_store_without_what_it_needs_is_not_built() {
    let builder = || Agent::builder(ScriptedModel::new()).tools(tools![log]);
    let kept = builder().keep_finished(Duration::from_secs(60));
    let cases = [
        (
            builder().output_store(InMemoryStore::new()),
            "an output store needs a limit, or nothing is stored; set `AgentBuilder::max_output_chars`",
        ),
        (kept, "finished runs are kept in a run store; set `AgentBuilder::run_store`"),
    ];
    for (agent, expected) in cases {
        assert_eq!(agent.build().unwrap_err().to_string(), expected);
    }
    let kept = builder().keep_finished(Duration::from_secs(60)).run_store(InMemoryStore::new());
    kept.output_store(InMemoryStore::new()).max_output_chars(LIMIT).build().unwrap();
}

#[tokio::test]
async fn nothing_is_offered_or_stored_unless_it_is_asked_for() {
    let without_store = ScriptedModel::new()
        .expects(|request| request.tools().len() == 1)
        .calls("log", "{}")
        .expects(|request| !request.messages().last().unwrap().text().contains("read_output"))
        .says("Done.");
    let agent = Agent::builder(without_store).tools(tools![log]).max_output_chars(LIMIT);
    agent.build().unwrap().ask("Go").await.unwrap();
}

/// The user reads what was shortened, and nothing of the tools that the model has.
#[tokio::test]
async fn a_returned_output_has_no_hint() {
    #[tool("Shows the log", return_direct)]
    fn show() -> String {
        log_text()
    }
    let model = ScriptedModel::new().calls("show", "{}");
    let agent = agent(model, InMemoryStore::new()).tools(tools![show]).build().unwrap();
    let answer = agent.ask("Show it").await.unwrap();
    assert!(answer.text().starts_with("begin") && answer.text().ends_with("end"), "{}", answer.text());
    let read = answer.new_messages().last().unwrap().text().into_owned();
    assert!(read.ends_with("reads and searches all of it.]"), "{read}");
}

/// A run that is dropped, and removed for that, takes the outputs of the agents inside along.
#[tokio::test]
async fn outputs_of_runs_inside_are_removed_with_the_run() {
    /// Reads the log, and never answers.
    struct Hangs(ScriptedModel, Arc<Notify>);
    impl ChatModel for Hangs {
        fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
            match request.messages().len() {
                1 => self.0.chat(request),
                _ => {
                    self.1.notify_one();
                    Box::pin(pending())
                }
            }
        }
    }
    let (store, hangs) = (Watched::default(), Arc::new(Notify::new()));
    let inner = Hangs(ScriptedModel::new().calls("log", "{}"), Arc::clone(&hangs));
    let inner = Agent::builder(inner).tools(tools![log]).max_output_chars(LIMIT).output_store(store.clone());
    let inner = inner.build().unwrap().as_tool("helper", "Helps");
    let outer = ScriptedModel::new().calls("helper", r#"{"question": "Help"}"#);
    let runs = InMemoryStore::new();
    let outer = agent(outer, store.clone()).tools(inner).run_store(runs.clone()).on_drop(OnDrop::Cancel);
    let outer = outer.build().unwrap();
    tokio::select! {
        _ = outer.ask("What is wrong?").into_future() => panic!("it hangs"),
        () = hangs.notified() => {}
    }
    assert_eq!(run_ids(&runs).await, [""; 0]);
    let (run, call, _) = store.stored.lock().unwrap()[0].clone();
    assert!(store.removed.lock().unwrap().contains(&run));
    assert_eq!(store.store.load_output(&run, &call).await.unwrap(), None);
}
