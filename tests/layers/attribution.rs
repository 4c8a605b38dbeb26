//! What the own requests of layers used: attributed to the layer, counted for the run, and not in its stream.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tests::support::ways::restored;
use tool_core::agent::{AgentBuilder, AgentTool, RunInfo, RunResources, RunSetup};
use tool_core::engine::AgentExt;
use tool_core::layer::{
    AnswerVerdict, CallVerdict, Layer, LayerContext, LayerError, LayerFuture, LayerPhase, OutputVerdict,
    QuestionVerdict, guard,
};
use tool_core::memory::{Budget, InMemoryStore};
use tool_core::model::{
    AssistantMessage, ChatResponse, Cost, Currency, ModelOptions, ModelPrices, Prices, ToolDefinition, Usage,
};
use tool_core::run::{Run, RunLimits};
use tool_core::signatures::{ClosureLayer, QuestionGuard, Timestamp, UsageReporter};
use tool_core::store::BudgetStore;
use tool_core::testing::ScriptedModel;
use tool_core::tool::{Progress, Tool, ToolExecution, ToolFuture};
use tool_core::{
    Agent, CancellationToken, ConversationId, Event, Message, RunErrorKind, ToolCall, ToolContext,
    content::Content, tool, tools,
};

/// A dollar for a million tokens of input, and ten for output: 1 and 10 millionths of a dollar each.
fn prices() -> Prices {
    Prices::from_fn(Currency::USD, |_, _| Some(ModelPrices::new(1.0, 10.0).with_max_output_tokens(1_000)))
}

#[tool("Acts")]
fn act(text: String) -> String {
    text
}

/// A model that calls `act` and then answers.
fn acts() -> ScriptedModel {
    let model = ScriptedModel::new().calls("act", r#"{"text": "a"}"#).with_usage(Usage::new(100, 10));
    model.says("Done.").with_usage(Usage::new(200, 20))
}

fn agent(model: ScriptedModel) -> AgentBuilder {
    Agent::builder(model).tools(tools![act]).prices(prices())
}

type Verdict = Pin<Box<dyn Future<Output = Result<QuestionVerdict, LayerError>> + Send>>;

/// A guard of questions that asks a model of its own, at a cost of 70 millionths.
fn moderation() -> QuestionGuard {
    let model = ScriptedModel::new().says("fine").with_usage(Usage::new(50, 2));
    let model = model.says("fine").with_usage(Usage::new(50, 2));
    let moderator = Agent::builder(model).prices(prices()).build().unwrap();
    let judge = move |question: &Content, at: &LayerContext<'_>| -> Verdict {
        let (check, reporter) = (moderator.ask(question.clone()), at.usage_reporter());
        Box::pin(async move {
            let check = check.await?;
            reporter.report(check.usage());
            Ok(if check.text() == "fine" { QuestionVerdict::Pass } else { QuestionVerdict::end("rude") })
        })
    };
    guard::question_with_context(judge).named("moderation")
}

/// The cost of each part, in millionths.
fn micros(parts: Vec<(String, Cost)>) -> Vec<(String, u64)> {
    parts.into_iter().map(|(name, cost)| (name, cost.micros())).collect()
}

#[tokio::test]
async fn the_requests_of_a_guard_are_attributed_to_it() {
    for guard in [moderation(), moderation().beside()] {
        let answer = agent(acts()).layer(guard).build().unwrap().ask("go").await.unwrap();
        assert_eq!(micros(answer.cost_by_layer()), [("moderation".into(), 70)]);
        assert_eq!(answer.usage_by_layer()[0].1.total_tokens, 52);
        assert_eq!(micros(answer.cost_by_agent()), [("agent".into(), 600)]);
        assert_eq!(answer.cost().unwrap().micros(), 670);
        assert_eq!(answer.usage().total_tokens, 382);
        assert_eq!(answer.turns(), 2);
    }
}

#[tokio::test]
async fn a_layer_that_reports_nothing_changes_nothing() {
    let silent = guard::question(|_| QuestionVerdict::Pass);
    let mut driver = agent(acts()).layer(silent).build().unwrap().ask("go").start();
    assert!(driver.advance().await.unwrap());
    assert_eq!(serde_json::to_value(driver.run()).unwrap().get("layers"), None);
    while driver.advance().await.unwrap() {}
    let answer = driver.finish().await.unwrap();
    assert_eq!((answer.usage_by_layer(), answer.cost_by_layer()), (vec![], vec![]));
    assert_eq!(serde_json::to_value(&answer).unwrap().get("usage_by_layer"), None);
}

#[tokio::test]
async fn the_events_of_a_guard_are_not_in_the_stream() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    let agent = agent(acts()).layer(moderation()).build().unwrap();
    let ask = agent.ask("go").on_event(move |event| match event {
        Event::Text(text) => seen.lock().unwrap().push(text.clone()),
        Event::Charged(cost) => seen.lock().unwrap().push(cost.micros().to_string()),
        Event::TurnStarted { .. } => seen.lock().unwrap().push("turn".to_owned()),
        _ => {}
    });
    let mut stream = ask.stream();
    while stream.next().await.is_some() {}
    assert_eq!(*events.lock().unwrap(), ["turn", "200", "turn", "Done.", "400"]);
}

#[tokio::test]
async fn what_a_guard_spends_limits_the_run_and_survives_a_resume() {
    let agent = agent(acts()).layer(moderation()).build().unwrap();
    let error = agent.ask("go").limits(|l| l.max_cost(Cost::usd(0.000_1))).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::MaxCost { spent, .. } if spent.micros() == 70), "{error}");
    let run = restored(error.into_run());
    assert_eq!(run.usage_by_layer()[0].1.cost.unwrap().micros(), 70);
    assert_eq!(run.cost().unwrap().micros(), 70);
    // The guard is not asked again, and what it has spent still counts.
    let error = agent.resume(run).limits(|l| l.max_cost(Cost::usd(0.000_11))).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::MaxCost { spent, .. } if spent.micros() == 70), "{error}");
    let answer =
        agent.resume(restored(error.into_run())).limits(|l| l.max_cost(Cost::usd(1.0))).await.unwrap();
    assert_eq!(micros(answer.cost_by_layer()), [("moderation".into(), 70)]);
    assert_eq!(answer.cost().unwrap().micros(), 670);
}

/// Charges another number of tokens at each of its parts, and fails if it is asked to.
struct EachPart {
    fails_at_answer: bool,
}

fn charge<V: Send + 'static>(reporter: &UsageReporter, tokens: u64, verdict: V) -> LayerFuture<'static, V> {
    reporter.report(Usage::new(tokens, 0));
    Box::pin(async { Ok(verdict) })
}

impl Layer for EachPart {
    fn name(&self) -> &str {
        "each part"
    }

    fn sees(&self, phase: LayerPhase) -> bool {
        phase != LayerPhase::Model
    }

    fn question<'a>(&'a self, _: &'a Content, at: &'a LayerContext<'a>) -> LayerFuture<'a, QuestionVerdict> {
        charge(&at.usage_reporter(), 1, QuestionVerdict::Pass)
    }

    fn rewrite<'a>(&'a self, _: &'a ToolCall, at: &'a LayerContext<'a>) -> LayerFuture<'a, Option<String>> {
        charge(&at.usage_reporter(), 10, None)
    }

    fn judge<'a>(&'a self, _: &'a ToolCall, at: &'a LayerContext<'a>) -> LayerFuture<'a, CallVerdict> {
        charge(&at.usage_reporter(), 100, CallVerdict::Pass)
    }

    fn output<'a>(
        &'a self,
        _: &'a ToolExecution,
        at: &'a LayerContext<'a>,
    ) -> LayerFuture<'a, OutputVerdict> {
        charge(&at.usage_reporter(), 1_000, OutputVerdict::Pass)
    }

    fn answer<'a>(&'a self, _: &'a str, at: &'a LayerContext<'a>) -> LayerFuture<'a, AnswerVerdict> {
        at.usage_reporter().report(Usage::new(10_000, 0));
        Box::pin(async { if self.fails_at_answer { Err("down".into()) } else { Ok(AnswerVerdict::Pass) } })
    }
}

#[tokio::test]
async fn each_part_can_report() {
    let agent = || agent(acts()).layer(EachPart { fails_at_answer: false }).build().unwrap();
    let answer = agent().ask("go").await.unwrap();
    let expected = [("each part".to_owned(), Usage::new(11_111, 0))];
    assert_eq!(answer.usage_by_layer(), expected);
    let agent = agent();
    let mut driver = agent.ask("go").start();
    while driver.advance().await.unwrap() {
        let run = restored(driver.into_run());
        driver = agent.resume(run).start();
    }
    // Another driver judges the call again before it executes it.
    let expected = [("each part".to_owned(), Usage::new(11_211, 0))];
    assert_eq!(driver.finish().await.unwrap().usage_by_layer(), expected);
}

#[tokio::test]
async fn the_error_of_a_layer_has_what_it_used() {
    let agent = || agent(acts()).layer(EachPart { fails_at_answer: true }).build().unwrap();
    let expected = [("each part".to_owned(), Usage::new(11_111, 0))];
    let error = agent().ask("go").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Layer { .. }), "{error}");
    assert_eq!(error.run().usage_by_layer(), expected);
    let mut driver = agent().ask("go").start();
    let error = loop {
        if let Err(error) = driver.advance().await {
            break error;
        }
    };
    assert_eq!(error.run().usage_by_layer(), expected);
    assert_eq!(driver.run().usage_by_layer(), expected);
}

#[tokio::test]
async fn a_layer_around_an_agent_as_a_tool_has_one_part() {
    let inner = agent(acts()).layer(moderation()).build().unwrap();
    let inner = inner.as_tool("inner", "Acts").limits(|_| RunLimits::new().max_cost(Cost::usd(1.0)));
    let model = ScriptedModel::new().calls("inner", r#"{"question": "go"}"#).with_usage(Usage::new(1, 1));
    let model = model.says("Done.").with_usage(Usage::new(1, 1));
    let judged = guard::call_with_context(|_, at| {
        at.usage_reporter().report(Usage::new(1, 0));
        CallVerdict::Pass
    });
    let outer = Agent::builder(model).tools(inner).prices(prices()).layer(moderation()).layer(judged);
    let answer = outer.build().unwrap().ask("go").await.unwrap();
    assert_eq!(micros(answer.cost_by_layer()), [("moderation".into(), 140)]);
    let parts = answer.usage_by_layer().into_iter().map(|(layer, used)| (layer, used.total_tokens));
    // Its own call, and the call of the agent inside.
    assert_eq!(parts.collect::<Vec<_>>(), [("moderation".into(), 104), ("guard::call".into(), 2)]);
    assert_eq!(answer.cost().unwrap().micros(), 762);
}

#[tokio::test]
async fn a_guard_inside_spends_from_the_limit_of_the_outer_run() {
    let inner = Agent::builder(ScriptedModel::new()).layer(moderation()).build().unwrap();
    let model = ScriptedModel::new().calls("inner", r#"{"question": "go"}"#).with_usage(Usage::new(1_290, 1));
    let outer = Agent::builder(model).tools(inner.as_tool("inner", "Acts")).prices(prices()).build().unwrap();
    let error = outer.ask("go").limits(|l| l.max_cost(Cost::usd(0.001_5))).await.unwrap_err();
    assert!(
        matches!(error.kind(), RunErrorKind::MaxCost { spent, .. } if spent.micros() == 1_370),
        "{error}"
    );
    assert_eq!(restored(error.into_run()).cost().unwrap().micros(), 1_370);
}

#[test]
fn outside_of_a_run_nothing_is_recorded() {
    let context = ToolContext::new();
    LayerContext::new(&context).usage_reporter().report(Usage::new(1, 1));
}

/// Asks an agent in its body, instead of being one.
struct Probe(AgentTool);

impl Tool for Probe {
    fn definition(&self) -> &ToolDefinition {
        self.0.definition()
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        self.0.call(arguments, context)
    }
}

/// Gives a run its country, and a layer.
struct Country(Log);

type Log = Arc<Mutex<Vec<String>>>;

impl RunSetup for Country {
    async fn open(&self, run: &RunInfo) -> Result<RunResources, Box<dyn std::error::Error + Send + Sync>> {
        let user = run.user().ok_or("no user")?.to_string();
        let country = format!("{user}'s in {}", run.conversation().ok_or("no conversation")?);
        Ok(RunResources::new().context(country).layer(sees("country", &self.0)))
    }
}

/// Records what a call inside looks like from a layer.
fn sees(name: &'static str, log: &Log) -> ClosureLayer {
    let log = Arc::clone(log);
    let judge = move |call: &ToolCall, at: &LayerContext<'_>| {
        if call.name == "act" {
            let country = at.context.get::<String>();
            log.lock().unwrap().push(format!("{name} at {:?}, {country:?}", at.agents));
        }
        CallVerdict::Pass
    };
    guard::call_with_context(judge).named(name)
}

/// In a driver, and for a call that another process executes, where the runs around are known by their names alone.
#[tokio::test]
async fn a_call_is_performed_with_the_same_layers_context_and_budgets_on_each_way_to_it() {
    let (log, store) = (Log::default(), InMemoryStore::new());
    let budget = Budget::tokens(store.clone(), 100_000, Duration::from_secs(86_400));
    let go = r#"{"question": "go"}"#;
    let part = |name: &'static str, model: ScriptedModel| {
        let part = Agent::builder(model).options(ModelOptions::default().with_max_output_tokens(100));
        part.layer(sees(name, &log)).run_setup(Country(Arc::clone(&log))).budget(budget.key(name))
    };
    let build = || {
        let helper = ScriptedModel::new().calls("act", r#"{"text": "a"}"#).says("Acted.");
        let helper = part("helper", helper).tools(tools![act]).build().unwrap();
        let probe = Probe(helper.as_tool("probe", "Acts").pass_context::<u32>());
        let books = part("books", ScriptedModel::new().calls("probe", go).says("Done.")).tools(probe);
        let billing = part("billing", ScriptedModel::new().calls("books", "{}"));
        let billing = billing.handoff_to("books", "Has the books", &books.build().unwrap());
        let billing = billing.build().unwrap().as_tool("billing", "Bills");
        part("desk", ScriptedModel::new().calls("billing", go).says("Done.")).tools(billing).build().unwrap()
    };
    let answer = build().ask("go").user("ada").context(ConversationId::from("chat")).await.unwrap();
    assert_eq!(answer.text(), "Done.");
    let in_process = std::mem::take(&mut *log.lock().unwrap());
    assert_eq!(in_process.len(), 7, "{in_process:#?}");

    let spent = async || {
        let mut spent = Vec::new();
        for name in ["desk", "billing", "books", "helper"] {
            spent.push(store.spent(&budget.key(name).period_at(Timestamp::now())).await.unwrap());
        }
        spent
    };
    let before = spent().await;
    let mut run = Run::new([Message::user("go")]).with_user("ada").with_conversation("chat");
    let reply = AssistantMessage::default().with_tool_calls([ToolCall::new("a", "probe", go)]);
    run.record_response(ChatResponse::new(reply)).unwrap();
    let (request, never) = (run.request_call("a").unwrap(), CancellationToken::new());
    let path = ["billing", "books"];
    let (desk, context) = (build(), ToolContext::new());
    let executed = desk.execute_request(&path, request, &context, &never, Progress::default());
    assert_eq!(executed.await.output().unwrap().to_string(), "Acted.");
    assert_eq!(*log.lock().unwrap(), in_process);
    // Each of the runs around pays for the requests of the agent inside.
    let used: Vec<_> = before.into_iter().zip(spent().await).map(|(before, after)| after - before).collect();
    assert_eq!(used, [used[3]; 4]);
    assert!(used[3] > 0);
}
