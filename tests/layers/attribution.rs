//! What the own requests of layers used: attributed to the layer, counted for the run, and not in its stream.

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use tests::support::ways::restored;
use tool_core::agent::AgentBuilder;
use tool_core::layer::{
    Account, AnswerVerdict, CallVerdict, Layer, LayerError, LayerFuture, OutputVerdict, Phase, Place,
    QuestionGuard, QuestionVerdict, guard,
};
use tool_core::model::{Cost, Currency, ModelPrices, Prices, Usage};
use tool_core::run::RunLimits;
use tool_core::testing::ScriptedModel;
use tool_core::tool::ToolExecution;
use tool_core::{Agent, Event, RunErrorKind, ToolCall, ToolContext, content::Content, tool, tools};

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
    let judge = move |question: &Content, at: &Place<'_>| -> Verdict {
        let (check, account) = (moderator.ask(question.clone()), at.account());
        Box::pin(async move {
            let check = check.await?;
            account.charge(check.usage());
            Ok(if check.text() == "fine" { QuestionVerdict::Pass } else { QuestionVerdict::end("rude") })
        })
    };
    guard::question_at(judge).named("moderation")
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
    let mut driver = agent(acts()).layer(silent).build().unwrap().start("go");
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

fn charge<V: Send + 'static>(account: &Account, tokens: u64, verdict: V) -> LayerFuture<'static, V> {
    account.charge(Usage::new(tokens, 0));
    Box::pin(async { Ok(verdict) })
}

impl Layer for EachPart {
    fn name(&self) -> &str {
        "each part"
    }

    fn sees(&self, phase: Phase) -> bool {
        phase != Phase::Model
    }

    fn question<'a>(&'a self, _: &'a Content, at: &'a Place<'a>) -> LayerFuture<'a, QuestionVerdict> {
        charge(&at.account(), 1, QuestionVerdict::Pass)
    }

    fn rewrite<'a>(&'a self, _: &'a ToolCall, at: &'a Place<'a>) -> LayerFuture<'a, Option<String>> {
        charge(&at.account(), 10, None)
    }

    fn judge<'a>(&'a self, _: &'a ToolCall, at: &'a Place<'a>) -> LayerFuture<'a, CallVerdict> {
        charge(&at.account(), 100, CallVerdict::Pass)
    }

    fn output<'a>(&'a self, _: &'a ToolExecution, at: &'a Place<'a>) -> LayerFuture<'a, OutputVerdict> {
        charge(&at.account(), 1_000, OutputVerdict::Pass)
    }

    fn answer<'a>(&'a self, _: &'a str, at: &'a Place<'a>) -> LayerFuture<'a, AnswerVerdict> {
        at.account().charge(Usage::new(10_000, 0));
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
    let mut driver = agent.start("go");
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
    let mut driver = agent().start("go");
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
    let judged = guard::call_at(|_, at| {
        at.account().charge(Usage::new(1, 0));
        CallVerdict::Pass
    });
    let outer = Agent::builder(model).tool(inner).prices(prices()).layer(moderation()).layer(judged);
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
    let outer = Agent::builder(model).tool(inner.as_tool("inner", "Acts")).prices(prices()).build().unwrap();
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
    Place::new(&context).account().charge(Usage::new(1, 1));
}
