//! The spans of a run, as a subscriber receives them.

use std::collections::BTreeMap;
use std::fmt;
use std::future::IntoFuture;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tool_core::agent::AgentBuilder;
use tool_core::layer::guard;
use tool_core::memory::InMemoryStore;
use tool_core::model::{ChatRequest, Currency, ModelPrices, Prices, Usage};
use tool_core::provider::ModelFuture;
use tool_core::run::{ErrorPolicy, Step};
use tool_core::store::RunStore;
use tool_core::testing::ScriptedModel;
use tool_core::tool::ToolErrorKind;
use tool_core::{
    Agent, Answer, CancellationToken, ChatModel, ModelOptions, RunError, RunErrorKind, SqliteStore, tool,
    tools,
};
use tool_offline::OfflineModel;
use tool_openai::OpenAi;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Instrument, Subscriber, info_span};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// A layer that records every span in the order in which they started.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<Span>>>);

#[derive(Clone, Default)]
struct Span {
    id: u64,
    parent: Option<u64>,
    name: &'static str,
    fields: BTreeMap<&'static str, Value>,
    is_closed: bool,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let parent = context.span(id).and_then(|span| span.parent()).map(|parent| parent.id().into_u64());
        let mut span =
            Span { id: id.into_u64(), parent, name: attributes.metadata().name(), ..Span::default() };
        attributes.record(&mut span);
        self.0.lock().unwrap().push(span);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        self.update(id, |span| values.record(span));
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        self.update(&id, |span| span.is_closed = true);
    }
}

impl Visit for Span {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.note(field, json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.note(field, json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.note(field, json!(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.note(field, json!(value));
    }

    fn record_debug(&mut self, field: &Field, _: &dyn fmt::Debug) {
        panic!("a collector would show {field} as text");
    }
}

impl Span {
    fn note(&mut self, field: &Field, value: Value) {
        let before = self.fields.insert(field.name(), value);
        assert_eq!(before, None, "{field} of {} is recorded once", self.name);
    }

    /// The name that a collector shows.
    fn shown(&self) -> &str {
        self.fields.get("otel.name").and_then(Value::as_str).unwrap_or(self.name)
    }
}

impl Spans {
    /// Records the spans of this thread.
    fn listen(&self) -> DefaultGuard {
        // While one dispatcher lives, no thread without one disables a call site for all.
        static KEPT: LazyLock<tracing::Dispatch> =
            LazyLock::new(|| tracing::Dispatch::new(tracing_subscriber::registry()));
        LazyLock::force(&KEPT);
        tracing::subscriber::set_default(tracing_subscriber::registry().with(self.clone()))
    }

    fn update(&self, id: &Id, change: impl FnOnce(&mut Span)) {
        let mut spans = self.0.lock().unwrap();
        // Ids are reused after a span is closed.
        let found = spans.iter_mut().rfind(|span| span.id == id.into_u64() && !span.is_closed);
        change(found.expect("the span has started"));
    }

    fn all(&self) -> Vec<Span> {
        let spans = self.0.lock().unwrap().clone();
        assert!(spans.iter().all(|span| span.is_closed), "every span is closed");
        spans
    }

    /// Returns each span under its parents, with its error.
    fn tree(&self) -> Vec<String> {
        let spans = self.0.lock().unwrap().clone();
        let line = |(position, span): (usize, &Span)| {
            let mut path = vec![span.shown().to_owned()];
            let (mut position, mut parent) = (position, span.parent);
            while let Some(id) = parent {
                position = spans[..position].iter().rposition(|span| span.id == id).unwrap();
                path.insert(0, spans[position].shown().to_owned());
                parent = spans[position].parent;
            }
            let error = span.fields.get("error.type").and_then(Value::as_str);
            let status = span.fields.get("otel.status_code").and_then(Value::as_str);
            assert_eq!(status, error.map(|_| "ERROR"), "{}", span.shown());
            path.join(" > ") + &error.map(|error| format!(": {error}")).unwrap_or_default()
        };
        spans.iter().enumerate().map(line).collect()
    }
}

/// A layer that records every event of the level `DEBUG` as a line, without its duration.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Events {
    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        assert_eq!((*metadata.level(), metadata.target()), (tracing::Level::DEBUG, "tool_core"));
        let mut line = Line(context.event_span(event).unwrap().name().to_owned());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "duration_ms" => {}
            "message" => self.0 += &format!(": {value:?}"),
            name => self.0 += &format!(" {name}={value:?}"),
        }
    }
}

/// A script with a provider and a model name.
struct Named(ScriptedModel);

impl ChatModel for Named {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move {
            let mut response = self.0.chat(request).instrument(info_span!("request")).await?;
            response.id = Some("chatcmpl-1".into());
            response.model = Some("large-2026".into());
            Ok(response)
        })
    }

    fn provider_name(&self) -> Option<&str> {
        Some("openai")
    }

    fn model_name(&self) -> Option<&str> {
        Some("large")
    }
}

/// Looks something up after a delay.
#[tool]
async fn look_up(word: String, milliseconds: u64) -> String {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    async { format!("meaning of {word}") }.instrument(info_span!("query")).await
}

#[tool("Fails")]
fn fails(why: String) -> Result<(), String> {
    Err(format!("failed for {why}"))
}

#[tool("Panics")]
fn panics() {
    panic!("secret-panic")
}

/// Computes in a blocking thread.
#[tool(blocking)]
fn compute() {
    info_span!("step").in_scope(|| ());
}

#[tool("Is never there", attempts = 2)]
fn flaky() -> Result<(), String> {
    Err("not there".into())
}

fn agent(script: ScriptedModel) -> AgentBuilder {
    Agent::builder(Box::new(Named(script)) as Box<dyn ChatModel>)
        .name("clerk")
        .instructions("secret-instructions")
        .tools(tools![look_up, fails, panics, compute, flaky])
}

/// Returns a script with two concurrent calls (the first takes longer), then a failing call, then an answer.
fn script() -> ScriptedModel {
    let mut usage = Usage::new(10, 2);
    usage.cached_tokens = Some(4);
    usage.cache_write_tokens = Some(3);
    ScriptedModel::new()
        .calls_all([
            ("look_up", r#"{"word": "secret-first", "milliseconds": 40}"#),
            ("look_up", r#"{"word": "secret-second", "milliseconds": 1}"#),
        ])
        .with_usage(usage)
        .calls_all([("fails", r#"{"why": "secret-why"}"#), ("panics", "{}"), ("gone", "{}"), ("fails", "{}")])
        .with_usage(Usage::new(20, 3))
        .says("secret-answer")
}

const QUESTION: &str = "secret-question";

async fn awaited(agent: &Agent) -> Result<Answer, RunError> {
    agent.ask(QUESTION).conversation("talk-7").await
}

async fn streamed(agent: &Agent) -> Result<Answer, RunError> {
    let mut events = agent.ask(QUESTION).conversation("talk-7").stream();
    while let Some(event) = events.next().await {
        if let tool_core::Event::Done(answer) = event? {
            return Ok(answer);
        }
    }
    panic!("the stream ended without a final event");
}

async fn by_hand(agent: &Agent) -> Result<Answer, RunError> {
    let mut run = agent.ask(QUESTION).conversation("talk-7").start();
    loop {
        match run.next().await? {
            Step::CallModel(request) => {
                let response = agent.model().chat(&request).await.unwrap();
                run.record_response(response).await?;
            }
            Step::CallTools(calls) => {
                for call in calls {
                    let execution = run.execute(call).await?;
                    run.record_result(execution).await?;
                }
            }
            _ => return run.finish().await,
        }
    }
}

#[tokio::test]
async fn nests_spans() {
    let tree = |request: &str| {
        [
            "invoke_agent clerk",
            "invoke_agent clerk > turn",
            "invoke_agent clerk > turn > chat large",
            request,
            "invoke_agent clerk > turn > execute_tool look_up",
            "invoke_agent clerk > turn > execute_tool look_up",
            "invoke_agent clerk > turn > execute_tool look_up > query",
            "invoke_agent clerk > turn > execute_tool look_up > query",
            "invoke_agent clerk > turn",
            "invoke_agent clerk > turn > chat large",
            request,
            "invoke_agent clerk > turn > execute_tool fails: failed",
            "invoke_agent clerk > turn > execute_tool panics: panicked",
            "invoke_agent clerk > turn > execute_tool: unknown_tool",
            "invoke_agent clerk > turn > execute_tool fails: invalid_arguments",
            "invoke_agent clerk > turn",
            "invoke_agent clerk > turn > chat large",
            request,
        ]
        .map(String::from)
    };
    let inside = "invoke_agent clerk > turn > chat large > request";
    for way in ["awaited", "streamed", "by hand"] {
        let spans = Spans::default();
        let _listening = spans.listen();
        let agent = agent(script()).build().unwrap();
        let (answer, mut expected) = match way {
            "awaited" => (awaited(&agent).await, tree(inside)),
            "streamed" => (streamed(&agent).await, tree(inside)),
            // The caller asks the model itself.
            _ => (by_hand(&agent).await, tree("request")),
        };
        assert_eq!(answer.unwrap().text(), "secret-answer", "{way}");
        let mut actual = spans.tree();
        if way == "by hand" {
            // Executes one call after the other.
            actual[4..8].sort();
            expected[4..8].sort();
        }
        assert_eq!(actual, expected, "{way}");
        spans.all();
    }
}

fn fields(span: &Span) -> Value {
    json!(span.fields)
}

#[tokio::test]
async fn attributes() {
    for streams in [false, true] {
        let spans = Spans::default();
        let _listening = spans.listen();
        let options = ModelOptions::default()
            .with_temperature(0.5)
            .with_top_p(0.25)
            .with_max_output_tokens(100)
            .with_seed(-7)
            .with_stop(["END"]);
        let agent = agent(script()).options(options).build().unwrap();
        if streams { streamed(&agent).await } else { awaited(&agent).await }.unwrap();
        let spans = spans.all();
        let [run, turn, chat] = [0, 1, 2].map(|position| spans[position].clone());
        let second = spans.iter().filter(|span| span.name == "turn").nth(1).unwrap();
        assert_eq!(
            fields(&turn),
            json!({ "otel.name": "turn", "otel.kind": "internal", "tool_core.turn.number": 1 })
        );
        assert_eq!(second.fields["tool_core.turn.number"], 2);

        let mut run_fields = fields(&run);
        let id = run_fields.as_object_mut().unwrap().remove("tool_core.run.id").unwrap();
        assert!(id.as_str().unwrap().starts_with("run_"), "{id}");
        assert_eq!(
            run_fields,
            json!({
                "otel.name": "invoke_agent clerk",
                "otel.kind": "internal",
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": "clerk",
                "gen_ai.conversation.id": "talk-7",
                "gen_ai.provider.name": "openai",
                "gen_ai.request.model": "large",
                "gen_ai.response.finish_reasons": r#"["stop"]"#,
                "gen_ai.usage.input_tokens": 30,
                "gen_ai.usage.output_tokens": 5,
                "gen_ai.usage.cache_read.input_tokens": 4,
                "gen_ai.usage.cache_creation.input_tokens": 3,
            })
        );

        let mut expected = json!({
            "otel.name": "chat large",
            "otel.kind": "client",
            "gen_ai.operation.name": "chat",
            "gen_ai.conversation.id": "talk-7",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "large",
            "gen_ai.request.temperature": 0.5,
            "gen_ai.request.top_p": 0.25,
            "gen_ai.request.max_tokens": 100,
            "gen_ai.request.seed": -7,
            "gen_ai.request.stop_sequences": r#"["END"]"#,
            "gen_ai.response.id": "chatcmpl-1",
            "gen_ai.response.model": "large-2026",
            "gen_ai.response.finish_reasons": r#"["tool_call"]"#,
            "gen_ai.usage.input_tokens": 10,
            "gen_ai.usage.output_tokens": 2,
            "gen_ai.usage.cache_read.input_tokens": 4,
            "gen_ai.usage.cache_creation.input_tokens": 3,
        });
        if streams {
            expected["gen_ai.request.stream"] = json!(true);
        }
        assert_eq!(fields(&chat), expected);

        let call = spans.iter().find(|span| span.name == "execute_tool").unwrap();
        assert_eq!(
            fields(call),
            json!({
                "otel.name": "execute_tool look_up",
                "otel.kind": "internal",
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "look_up",
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": "call_1_0",
                "gen_ai.tool.description": "Looks something up after a delay.",
                "tool_core.call.attempt": 1,
            })
        );
    }
}

#[tokio::test]
async fn traces_content_only_on_request() {
    for (traced, is_awaited) in [(None, true), (Some(false), true), (None, false)] {
        let spans = Spans::default();
        let _listening = spans.listen();
        let builder = agent(script());
        let builder = match traced {
            Some(traced) => builder.trace_content(traced),
            None => builder,
        };
        let agent = builder.build().unwrap();
        if is_awaited { awaited(&agent).await } else { by_hand(&agent).await }.unwrap();
        for span in spans.all() {
            let fields = fields(&span).to_string();
            assert!(!fields.contains("secret") && !fields.contains("meaning"), "{}: {fields}", span.shown());
        }
    }
}

#[tokio::test]
async fn traces_requested_content() {
    let spans = Spans::default();
    let _listening = spans.listen();
    let agent = agent(script()).trace_content(true).build().unwrap();
    awaited(&agent).await.unwrap();
    let spans = spans.all();
    let json = |span: &Span, field: &str| -> Value {
        serde_json::from_str(span.fields[field].as_str().unwrap()).unwrap()
    };
    let spans_named = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let (run, chats, calls) =
        (spans_named("invoke_agent")[0], spans_named("chat"), spans_named("execute_tool"));

    let text = |text: &str| json!([{ "type": "text", "content": text }]);
    let question = json!([
        { "role": "system", "parts": text("secret-instructions") },
        { "role": "user", "parts": text(QUESTION) },
    ]);
    assert_eq!(json(run, "gen_ai.input.messages"), question);
    assert_eq!(json(chats[0], "gen_ai.input.messages"), question);
    let answer = json!([{ "role": "assistant", "parts": text("secret-answer"), "finish_reason": "stop" }]);
    assert_eq!(json(run, "gen_ai.output.messages"), answer);
    assert_eq!(json(chats[2], "gen_ai.output.messages"), answer);
    let reply = json(chats[0], "gen_ai.output.messages");
    assert_eq!(
        reply[0]["parts"][1],
        json!({
            "type": "tool_call",
            "id": "call_1_1",
            "name": "look_up",
            "arguments": { "word": "secret-second", "milliseconds": 1 },
        })
    );
    assert_eq!(
        json(chats[1], "gen_ai.input.messages")[3]["parts"],
        json!([{ "type": "tool_call_response", "id": "call_1_0", "response": "meaning of secret-first" }])
    );
    let first = (&calls[0].fields["gen_ai.tool.call.arguments"], &calls[0].fields["gen_ai.tool.call.result"]);
    assert_eq!(
        first,
        (&json!(r#"{"word": "secret-first", "milliseconds": 40}"#), &json!("meaning of secret-first"))
    );
    assert_eq!(calls[2].fields["otel.status_description"], "failed for secret-why");
}

#[tokio::test]
async fn records_the_errors_of_failed_runs() {
    type Build = fn(AgentBuilder) -> AgentBuilder;
    let one = || ScriptedModel::new().calls("fails", r#"{"why": "secret-why"}"#);
    let table: [(ScriptedModel, Build, &[&str]); 4] = [
        (
            ScriptedModel::new().fails("secret-line"),
            |agent| agent,
            &[
                "run: model",
                "run > turn",
                "run > turn > chat large: model",
                "run > turn > chat large > request",
            ],
        ),
        (
            one(),
            |agent| agent.error_policy(ToolErrorKind::Failed, ErrorPolicy::EndRun),
            &[
                "run: tool_failed",
                "run > turn",
                "run > turn > chat large",
                "run > turn > chat large > request",
                "run > turn > execute_tool fails: failed",
            ],
        ),
        (
            one(),
            |agent| agent.limits(|l| l.max_turns(1)),
            &["run: max_turns", "run > turn", "run > turn > chat large", "run > turn > chat large > request"],
        ),
        // Waiting for approval is not a failure.
        (
            one(),
            |agent| agent.layer(guard::needs_approval(|_| true)),
            &["run", "run > turn", "run > turn > chat large", "run > turn > chat large > request"],
        ),
    ];
    for (script, build, expected) in table {
        let spans = Spans::default();
        let _listening = spans.listen();
        let agent = build(agent(script)).build().unwrap();
        awaited(&agent).await.unwrap_err();
        let actual: Vec<_> =
            spans.tree().iter().map(|line| line.replace("invoke_agent clerk", "run")).collect();
        assert_eq!(actual, expected);
        assert!(spans.all().iter().all(|span| !fields(span).to_string().contains("secret")));
    }
}

#[tokio::test(start_paused = true)]
async fn abandoned_spans_are_cancelled() {
    let script = || ScriptedModel::new().calls("look_up", r#"{"word": "a", "milliseconds": 60000}"#);
    // Long enough to reach the call on any machine.
    let soon = Duration::from_millis(300);
    let expected = [
        "invoke_agent clerk: cancelled",
        "invoke_agent clerk > turn",
        "invoke_agent clerk > turn > chat large",
        "invoke_agent clerk > turn > chat large > request",
        "invoke_agent clerk > turn > execute_tool look_up: cancelled",
    ];
    for is_dropped in [true, false] {
        let spans = Spans::default();
        let _listening = spans.listen();
        let agent = agent(script()).build().unwrap();
        if is_dropped {
            tokio::time::timeout(soon, awaited(&agent)).await.unwrap_err();
        } else {
            let cancellation = CancellationToken::new();
            let asked = agent.ask(QUESTION).cancellation_token(cancellation.clone()).into_future();
            let cancelling = async {
                tokio::time::sleep(soon).await;
                cancellation.cancel();
            };
            tokio::join!(asked, cancelling).0.unwrap_err();
        }
        assert_eq!(spans.tree(), expected, "dropped: {is_dropped}");
        spans.all();
    }
}

/// A model that never replies.
struct Silent;

impl ChatModel for Silent {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn the_span_of_an_abandoned_model_call_ends() {
    let spans = Spans::default();
    let _listening = spans.listen();
    let agent = Agent::builder(Silent).build().unwrap();
    let cancellation = CancellationToken::new();
    let mut run = agent.ask(QUESTION).cancellation_token(cancellation.clone()).start();
    let cancelling = async { cancellation.cancel() };
    tokio::join!(run.advance(), cancelling).0.unwrap();
    assert_eq!(
        spans.tree(),
        ["invoke_agent", "invoke_agent > turn", "invoke_agent > turn > chat: cancelled"]
    );
    drop(run);
    spans.all();
}

#[tokio::test]
async fn requests_have_a_cost_also_if_they_fail_or_are_dropped() {
    let spans = Spans::default();
    let _listening = spans.listen();
    let prices = ModelPrices::new(1.0, 10.0).with_max_output_tokens(1_000);
    let prices = Prices::from_fn(Currency::USD, move |_, _| Some(prices));
    let model = ScriptedModel::new().fails("the line is dead").says("Hello").with_usage(Usage::new(100, 10));
    let agent = Agent::builder(model).prices(prices.clone()).build().unwrap();
    let run = agent.ask("Hello").await.unwrap_err().into_run();
    agent.resume(run).await.unwrap();
    let silent = Agent::builder(Silent).prices(prices).build().unwrap();
    let mut ask = Box::pin(silent.ask("Hello").into_future());
    assert!(futures_util::poll!(&mut ask).is_pending());
    drop(ask);
    let spans = spans.all();
    let costs = |name: &str| -> Vec<_> {
        let spans = spans.iter().filter(|span| span.name == name);
        spans.map(|span| span.fields["gen_ai.usage.cost"].as_f64().unwrap()).collect()
    };
    // At worst, a request costs its 85 tokens of input and the longest answer.
    assert_eq!(costs("chat"), [0.010_085, 0.000_2, 0.010_085]);
    assert_eq!(costs("invoke_agent"), [0.010_085, 0.000_2, 0.010_085]);
    assert_eq!(spans[0].fields["tool_core.cost.currency"], "USD");
}

#[tokio::test]
async fn a_resumed_run_has_its_own_spans() {
    let spans = Spans::default();
    let _listening = spans.listen();
    let script = script().fails("the line is dead").says("Again.").with_usage(Usage::new(1, 1));
    let agent = agent(script).limits(|l| l.max_turns(5)).build().unwrap();
    let mut run = agent.ask(QUESTION).start();
    assert!(run.advance().await.unwrap()); // the model calls
    let state = run.into_run();
    let mut run = agent.resume(state).start();
    while run.advance().await.unwrap() {}
    run.finish().await.unwrap();
    let spans = spans.all();
    let runs: Vec<_> = spans.iter().filter(|span| span.name == "invoke_agent").collect();
    let tokens: Vec<_> = runs.iter().map(|run| run.fields["gen_ai.usage.input_tokens"].as_i64()).collect();
    assert_eq!(tokens, [Some(10), Some(20)]);
    assert!(runs.iter().all(|run| !run.fields.contains_key("error.type")), "a stored run is not cancelled");
    assert_eq!(runs[0].fields["tool_core.run.id"], runs[1].fields["tool_core.run.id"]);
    // The calls belong to the turn that the first process started.
    let call = spans.iter().find(|span| span.name == "execute_tool").unwrap();
    let turn = spans.iter().rfind(|span| Some(span.id) == call.parent && span.name == "turn").unwrap();
    assert_eq!((turn.fields["tool_core.turn.number"].as_i64(), turn.parent), (Some(1), Some(runs[1].id)));
}

#[tokio::test]
async fn a_retried_step_has_a_span_of_its_own() {
    let spans = Spans::default();
    let _listening = spans.listen();
    let agent = agent(ScriptedModel::new().fails("the line is dead").says("Again.")).build().unwrap();
    let mut run = agent.ask(QUESTION).start();
    run.advance().await.unwrap_err();
    while run.advance().await.unwrap() {}
    run.finish().await.unwrap();
    let chat = "invoke_agent clerk > turn > chat large";
    let expected = [
        "invoke_agent clerk".to_owned(),
        "invoke_agent clerk > turn".to_owned(),
        format!("{chat}: model"),
        format!("{chat} > request"),
        chat.to_owned(),
        format!("{chat} > request"),
    ];
    assert_eq!(spans.tree(), expected);
}

#[tokio::test]
async fn a_continued_run_drops_its_earlier_error() {
    for (steps, expected) in [(1, "invoke_agent clerk: model"), (2, "invoke_agent clerk: cancelled")] {
        let spans = Spans::default();
        let _listening = spans.listen();
        let script = ScriptedModel::new().fails("the line is dead").calls("compute", "{}");
        let agent = agent(script).build().unwrap();
        let mut run = agent.ask(QUESTION).start();
        for _ in 0..steps {
            let _ = run.advance().await;
        }
        drop(run);
        assert_eq!(spans.tree()[0], expected);
    }
}

#[tokio::test(start_paused = true)]
async fn each_attempt_has_a_span() {
    let spans = Spans::default();
    let _listening = spans.listen();
    let agent = agent(ScriptedModel::new().calls("flaky", "{}").says("No.")).build().unwrap();
    awaited(&agent).await.unwrap();
    let spans = spans.all();
    let calls = spans.iter().filter(|span| span.name == "execute_tool");
    let attempts: Vec<_> = calls.map(|call| call.fields["tool_core.call.attempt"].as_i64()).collect();
    assert_eq!(attempts, [Some(1), Some(2)]);
}

#[test]
fn records_the_provider_of_the_model() {
    let openai = OpenAi::builder().base_url("http://127.0.0.1:1/v1").build().unwrap();
    let boxed = |model: Box<dyn ChatModel>| model;
    let table = [
        (boxed(Box::new(openai.chat_model("small"))), Some("openai"), Some("small")),
        (boxed(Box::new(Arc::new(openai.chat_model("small")))), Some("openai"), Some("small")),
        (boxed(Box::new(OfflineModel::new())), Some("tool_offline"), Some("offline")),
        (boxed(Box::new(ScriptedModel::new())), None, None),
    ];
    for (model, provider, name) in table {
        assert_eq!((model.provider_name(), model.model_name()), (provider, name));
    }
}

#[test]
fn a_blocking_tool_is_below_its_call_in_its_own_thread() {
    let tree = || {
        let spans = Spans::default();
        // One subscriber for the threads of this runtime only, as other tests run in the same process.
        let subscriber = tracing::Dispatch::new(tracing_subscriber::registry().with(spans.clone()));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .on_thread_start(move || std::mem::forget(tracing::dispatcher::set_default(&subscriber)))
            .enable_all()
            .build()
            .unwrap();
        let agent = agent(ScriptedModel::new().calls("compute", "{}").says("Computed.")).build().unwrap();
        runtime.block_on(runtime.spawn(async move { awaited(&agent).await.unwrap() })).unwrap();
        spans.tree()
    };
    let step = "invoke_agent clerk > turn > execute_tool compute > step";
    // `tracing` caches for the whole process whether somebody listens to a span. Other tests add and remove subscribers
    // meanwhile, and a span can be missed until the next one is added.
    let trees: Vec<_> = (0..10).map(|_| tree()).collect();
    assert!(trees.iter().any(|tree| tree.iter().filter(|line| *line == step).count() == 1), "{trees:?}");
    let elsewhere = |line: &String| line.ends_with("step") && line != step;
    let heard =
        trees.iter().filter(|tree| tree.iter().any(|line| step.strip_suffix(" > step") == Some(line)));
    assert!(!heard.flatten().any(elsewhere), "{trees:?}");
}

#[tokio::test]
async fn a_run_is_a_child_of_the_current_span() {
    let spans = Spans::default();
    let _listening = spans.listen();
    let agent = agent(ScriptedModel::new().says("Hello.")).build().unwrap();
    let ask = agent.ask(QUESTION).into_future();
    ask.instrument(info_span!("handler")).await.unwrap();
    assert_eq!(spans.tree()[..2], ["handler", "handler > invoke_agent clerk"]);
}

#[tokio::test]
async fn debug_events_report_sizes_but_no_content() {
    for content in [false, true] {
        let events = Events::default();
        let _listening =
            tracing::subscriber::set_default(tracing_subscriber::registry().with(events.clone()));
        let script = ScriptedModel::new()
            .calls("look_up", r#"{"word": "secret", "milliseconds": 1}"#)
            .calls("fails", r#"{"why": "secret"}"#)
            .says("secret");
        let agent = agent(script).trace_content(content).build().unwrap();
        awaited(&agent).await.unwrap();
        let shown = events.0.lock().unwrap().clone();
        let expected = [
            r#"chat: request messages=2 tools=5"#,
            r#"chat: response text_bytes=0 calls=1 finish_reason="tool_call""#,
            r#"execute_tool: call tool="look_up" id="call_1_0" arguments_bytes=37 attempt=1"#,
            r#"execute_tool: result tool="look_up" id="call_1_0" output_bytes=17"#,
            r#"chat: request messages=4 tools=5"#,
            r#"chat: response text_bytes=0 calls=1 finish_reason="tool_call""#,
            r#"execute_tool: call tool="fails" id="call_2_0" arguments_bytes=17 attempt=1"#,
            r#"execute_tool: result tool="fails" id="call_2_0" error="failed""#,
            r#"chat: request messages=6 tools=5"#,
            r#"chat: response text_bytes=6 calls=0 finish_reason="stop""#,
        ];
        assert_eq!(shown, expected);
    }
}

#[tokio::test]
async fn debug_events_report_a_failed_request() {
    let events = Events::default();
    let _listening = tracing::subscriber::set_default(tracing_subscriber::registry().with(events.clone()));
    let agent = agent(ScriptedModel::new()).build().unwrap();
    let error = awaited(&agent).await.unwrap_err();
    assert!(matches!(error.kind(), tool_core::RunErrorKind::Model(_)), "{error}");
    let expected = [r#"chat: request messages=2 tools=5"#, r#"chat: response error="model""#];
    assert_eq!(*events.0.lock().unwrap(), expected);
}

#[tokio::test]
async fn the_spans_of_an_agent_are_inside_of_the_call_that_asked_it() {
    let spans = Spans::default();
    let _guard = spans.listen();
    let inner = ScriptedModel::new().calls("look_up", r#"{"word": "a", "milliseconds": 0}"#).says("b");
    let inner = Agent::builder(inner).name("billing").tools(tools![look_up]).build().unwrap();
    let outer = ScriptedModel::new().calls("ask_billing", r#"{"question": "a"}"#).says("c");
    let outer =
        Agent::builder(outer).name("desk").tools(inner.as_tool("ask_billing", "Answers")).build().unwrap();
    outer.ask("What?").await.unwrap();
    let call = "invoke_agent desk > turn > execute_tool ask_billing";
    let inner = format!("{call} > invoke_agent billing");
    let expected = [
        "invoke_agent desk".to_owned(),
        "invoke_agent desk > turn".to_owned(),
        "invoke_agent desk > turn > chat".to_owned(),
        call.to_owned(),
        inner.clone(),
        format!("{inner} > turn"),
        format!("{inner} > turn > chat"),
        format!("{inner} > turn > execute_tool look_up"),
        format!("{inner} > turn > execute_tool look_up > query"),
        format!("{inner} > turn"),
        format!("{inner} > turn > chat"),
        "invoke_agent desk > turn".to_owned(),
        "invoke_agent desk > turn > chat".to_owned(),
    ];
    assert_eq!(spans.tree(), expected);
    assert_eq!(spans.all().len(), expected.len());
}

#[tokio::test]
async fn the_span_of_a_call_that_waits_records_no_error() {
    #[tool("Pays", needs_approval)]
    fn pay() {}
    let spans = Spans::default();
    let _guard = spans.listen();
    let inner = ScriptedModel::new().calls("pay", "{}").says("b");
    let inner = Agent::builder(inner).tools(tools![pay]).build().unwrap();
    let outer = ScriptedModel::new().calls("billing", r#"{"question": "a"}"#).says("c");
    let outer = Agent::builder(outer).tools(inner.as_tool("billing", "Answers")).build().unwrap();
    let error = outer.ask("What?").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
    let errors: Vec<_> = spans.tree().into_iter().filter(|line| line.contains(": ")).collect();
    assert_eq!(errors, Vec::<String>::new());
}

/// Only on request, because traces are read by many.
#[tokio::test]
async fn whose_run_it_is_is_traced_on_request() {
    for (traces_user, expected) in [(false, None), (true, Some("ada"))] {
        let spans = Spans::default();
        let _guard = spans.listen();
        let model = ScriptedModel::new().says("Hello.");
        let agent = Agent::builder(model).trace_user(traces_user).build().unwrap();
        agent.ask("Hi").user("ada").await.unwrap();
        let run = fields(&spans.all()[0]);
        assert_eq!(run["user.id"].as_str(), expected, "{run}");
    }
}

/// A layer that records every warning as a line.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        if *event.metadata().level() == tracing::Level::WARN {
            self.0.lock().unwrap().push(line.0);
        }
    }
}

/// Whoever resumes the run must pass them.
#[tokio::test]
async fn warns_once_of_values_that_a_stored_run_loses() {
    use tool_core::agent::{RunInfo, RunResources, RunSetup};
    struct Given;
    struct Lost;
    struct Application;
    impl RunSetup for Application {
        async fn open(&self, _: &RunInfo) -> Result<RunResources, Box<dyn std::error::Error + Send + Sync>> {
            Ok(RunResources::new().context(Given))
        }
    }
    let warnings = Warnings::default();
    let _listening = tracing::subscriber::set_default(tracing_subscriber::registry().with(warnings.clone()));
    let model = ScriptedModel::new().says("Hello.").says("Hello.").says("Hello.");
    let agent =
        Agent::builder(model.clone()).run_setup(Application).run_store(InMemoryStore::new()).build().unwrap();
    for _ in 0..2 {
        agent.ask("Hi").user("ada").context(Lost).context(Given).await.unwrap();
    }
    Agent::builder(model).build().unwrap().ask("Hi").context(Lost).await.unwrap();
    let warnings = warnings.0.lock().unwrap().clone();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("Lost") && !warnings[0].contains("Given"), "{warnings:?}");
    assert!(!warnings[0].contains("RunUser"), "{warnings:?}");
}

/// Nobody continues them, and a list does not have them.
#[tokio::test]
async fn warns_once_per_look_of_stored_runs_that_recovery_cannot_read() {
    let file = std::env::temp_dir().join(format!("unreadable-{}.db", std::process::id()));
    let store = SqliteStore::open(&file).await.unwrap();
    let agent = |name: &str| {
        let model = ScriptedModel::new().fails("down").fails("down").says("Hello.");
        Agent::builder(model).name(name).run_store(store.clone()).build().unwrap()
    };
    let (desk, other) = (agent("desk"), agent("other"));
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(desk.ask("Hi").await.unwrap_err().run().id().to_string());
    }
    ids.sort();
    let warnings = Warnings::default();
    let _listening = tracing::subscriber::set_default(tracing_subscriber::registry().with(warnings.clone()));
    let looks = async |agent: &Agent| {
        agent.recover().once().await.unwrap();
        std::mem::take(&mut *warnings.0.lock().unwrap())
    };
    let damage = "UPDATE runs SET summary = '{'";
    rusqlite::Connection::open(&file).unwrap().execute(damage, []).unwrap();
    let what = "stored runs cannot be read, and nobody continues them; update the program, or remove them";
    let expected = format!(": {what} number=2 runs=\"`{}`, `{}`\"", ids[0], ids[1]);
    assert_eq!(looks(&desk).await, [&*expected]);
    assert_eq!(looks(&desk).await, [&*expected]);
    assert_eq!(looks(&other).await, [""; 0], "they are of another agent");
    store.remove_run(&ids[0]).await.unwrap();
    store.remove_run(&ids[1]).await.unwrap();
    assert_eq!(looks(&desk).await, [""; 0]);
    drop((desk, other));
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", file.display()));
    }
}

/// Also if somebody hears that it waits.
#[tokio::test]
async fn a_run_inside_that_waits_is_not_cancelled() {
    let spans = Spans::default();
    let _listening = spans.listen();
    let clerk = Agent::builder(ScriptedModel::new().calls("look_up", r#"{"word": "a", "milliseconds": 0}"#));
    let clerk = clerk.tools(tools![look_up]).layer(guard::needs_approval(|_| true)).build().unwrap();
    let desk = ScriptedModel::new().calls("clerk", r#"{"question": "?"}"#);
    let desk = Agent::builder(desk).tools(clerk.as_tool("clerk", "Looks up")).build().unwrap();
    let error = desk.ask("Go").on_event(|_| {}).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
    drop(error);
    let runs: Vec<_> = spans.all().into_iter().filter(|span| span.name == "invoke_agent").collect();
    assert_eq!(runs.len(), 2);
    assert!(runs.iter().all(|run| !run.fields.contains_key("error.type")));
}
