//! What runs cost: prices, limits, and what is counted of requests that fail.

use std::future::IntoFuture;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use proptest::prelude::{any, prop_assert, proptest};
use tests::support::sampling::cases;
use tests::support::stores::{Counting, stored_runs};
use tool_core::agent::BuildErrorKind;
use tool_core::content::{Content, Image};
use tool_core::memory::{Budget, InMemoryStore};
use tool_core::model::{
    AssistantMessage, ChatRequest, ChatResponse, ChatStream, Cost, Currency, Delta, Fallback, FinishReason,
    ModelError, ModelErrorKind, ModelOptions, ModelPrices, OnUnknownPrice, Prices, Usage,
};
use tool_core::provider::{EarlierAttempt, ModelFuture};
use tool_core::run::{Run, RunLimits, Step};
use tool_core::signatures::PricesError;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ChatModel, Event, RunErrorKind, ToolCall, tool, tools};

/// A dollar for a million tokens of input, and ten for output: 1 and 10 millionths of a dollar each.
fn prices() -> Prices {
    Prices::from_fn(Currency::USD, |_, _| Some(ModelPrices::new(1.0, 10.0).with_max_output_tokens(1_000)))
}

fn micros(cost: Option<Cost>) -> Option<u64> {
    cost.map(Cost::micros)
}

#[tool("Sums two numbers")]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

#[test]
fn prices_count_each_kind_of_token() {
    let prices = ModelPrices::new(1.0, 10.0)
        .with_cached_input(0.1)
        .with_cache_writes(1.25, 2.0)
        .with_web_searches(5.0, 2);
    let prices = Prices::from_fn(Currency::EUR, move |_, _| Some(prices));
    let mut usage = Usage::new(1_000_000, 100_000);
    let cost = |usage| prices.cost("m", usage).unwrap().micros();
    assert_eq!(cost(usage), 2_000_000);
    usage.cached_tokens = Some(500_000);
    assert_eq!(cost(usage), 1_550_000);
    usage.cache_write_tokens = Some(400_000);
    assert_eq!(cost(usage), 1_650_000);
    usage.long_cache_write_tokens = Some(100_000);
    assert_eq!(cost(usage), 1_725_000);
    usage.web_searches = Some(3);
    assert_eq!(cost(usage), 1_740_000);
    assert_eq!(cost(Usage::new(0, 0)), 0);
    // Rounded up.
    assert_eq!(
        Prices::from_fn(Currency::EUR, |_, _| Some(ModelPrices::new(0.4, 0.0)))
            .cost("m", Usage::new(1, 0))
            .unwrap()
            .micros(),
        1
    );
}

#[test]
fn a_price_that_is_no_number_is_never_free() {
    for broken in [-1.0, f64::NAN, f64::INFINITY] {
        for prices in [
            ModelPrices::new(broken, 1.0),
            ModelPrices::new(0.0, broken),
            ModelPrices::new(0.0, 0.0).with_cached_input(broken),
            ModelPrices::new(0.0, 0.0).with_cache_writes(broken, 0.0),
            ModelPrices::new(0.0, 0.0).with_cache_writes(0.0, broken),
            ModelPrices::new(0.0, 0.0).with_web_searches(broken, 1),
        ] {
            let mut usage = Usage::new(4_000_000, 1_000_000);
            (usage.cached_tokens, usage.cache_write_tokens) = (Some(1_000_000), Some(2_000_000));
            (usage.long_cache_write_tokens, usage.web_searches) = (Some(1_000_000), Some(1_000));
            let prices = Prices::from_fn(Currency::USD, move |_, _| Some(prices));
            assert_eq!(prices.cost("m", usage).map(Cost::micros), Ok(u64::MAX));
        }
    }
}

#[tokio::test]
async fn prices_can_depend_on_the_length_of_the_input() {
    let prices = Prices::from_fn(Currency::USD, |_, usage| {
        let price = if usage.input_tokens > 200 { 2.0 } else { 1.0 };
        Some(ModelPrices::new(price, 0.0).with_max_output_tokens(1_000))
    });
    let cost = |input| prices.cost("m", Usage::new(input, 0)).unwrap().micros();
    assert_eq!((cost(200), cost(300)), (200, 600));
    // Before a request, the longest input is assumed.
    let model = ScriptedModel::new().fails("the line is dead").says("Hello").with_usage(Usage::new(150, 1));
    let agent =
        Agent::builder(model).prices(prices).limits(|l| l.max_cost(Cost::new(1_000, Currency::USD))).build();
    let agent = agent.unwrap();
    let error = agent.ask("a".repeat(300)).await.unwrap_err();
    assert_eq!(micros(error.run().cost()), Some(2 * (64 + 16 + 300)));
    assert_eq!(micros(agent.ask("a".repeat(300)).await.unwrap().cost()), Some(150));
}

#[test]
fn a_table_finds_names_and_their_beginnings() {
    let table = r#"
        currency = "USD"
        as_of = "2026-11-24"
        models.small = { input = 1, output = 2 }
        models."small-*" = { input = 3, output = 4 }
        models."s*" = { input = 5, output = 6 }
    "#;
    let prices = Prices::from_toml(table).unwrap();
    let cost = |model| prices.cost(model, Usage::new(1_000_000, 0)).map(Cost::micros);
    assert_eq!(cost("small"), Ok(1_000_000));
    assert_eq!(cost("small-2026"), Ok(3_000_000));
    assert_eq!(cost("sm"), Ok(5_000_000));
    assert_eq!(cost("large"), Err(PricesError::UnknownModel("large".into())));
    let prices = prices.unknown_models(OnUnknownPrice::WorstPrice);
    assert_eq!(prices.cost("large", Usage::new(1_000_000, 0)).map(Cost::micros), Ok(5_000_000));
    for (broken, why) in [
        ("currency = \"usd\"\nmodels = {}", "a currency has three upper-case letters"),
        ("currency = \"USD\"\nmodels.m = { input = -1, output = 1 }", "a price is a number and not negative"),
        ("currency = \"USD\"\nmodels.m = { input = 1, outptu = 1 }", "unknown field `outptu`"),
        ("currency = \"USD\"", "missing field `models`"),
    ] {
        let error = Prices::from_toml(broken).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[tokio::test]
async fn an_answer_has_the_cost_of_all_agents() {
    let model = ScriptedModel::new().says("Paid.").with_usage(Usage::new(50, 5));
    let billing = Agent::builder(model).build().unwrap();
    let model = ScriptedModel::new()
        .calls("billing", r#"{"question": "Is it paid?"}"#)
        .with_usage(Usage::new(100, 10))
        .says("Yes.")
        .with_usage(Usage::new(200, 20));
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    let agent = Agent::builder(model)
        .tools(billing.as_tool("billing", "Knows bills"))
        .prices(prices())
        .build()
        .unwrap();
    let ask = agent.ask("Is my bill paid?").on_event(move |event| match event {
        Event::Charged(cost) => seen.lock().unwrap().push(cost.micros()),
        Event::Agent { event, .. } => {
            if let Event::Charged(cost) = &**event {
                seen.lock().unwrap().push(cost.micros());
            }
        }
        _ => {}
    });
    let answer = ask.await.unwrap();
    assert_eq!(micros(answer.cost()), Some(700));
    let by_agent: Vec<_> =
        answer.cost_by_agent().into_iter().map(|(agent, cost)| (agent, cost.micros())).collect();
    assert_eq!(by_agent, [("agent".into(), 600), ("billing".into(), 100)]);
    assert_eq!(*events.lock().unwrap(), [200, 100, 400]);
}

#[tokio::test]
async fn without_prices_there_is_no_cost() {
    let model = ScriptedModel::new().says("Hello").with_usage(Usage::new(1, 1));
    let answer = Agent::builder(model).build().unwrap().ask("Hello").await.unwrap();
    assert_eq!(answer.cost(), None);
    assert!(answer.cost_by_agent().is_empty());
}

#[tokio::test]
async fn a_request_without_usage_counts_as_the_worst_case() {
    let model = ScriptedModel::new().fails("the line is dead").says("Hello");
    let agent = Agent::builder(model).prices(prices()).build().unwrap();
    let error = agent.ask("Hello").await.unwrap_err();
    // 64 tokens for the request, 16 for the message, 5 bytes; and the longest answer.
    let worst = 64 + 16 + 5 + 1_000 * 10;
    assert_eq!(micros(error.run().cost()), Some(worst));
    let answer = agent.resume(error.into_run()).await.unwrap();
    assert_eq!(micros(answer.cost()), Some(2 * worst));
}

#[tokio::test]
async fn a_usage_that_cannot_be_true_counts_as_the_worst_case() {
    let worst = 64 + 16 + 5 + 1_000 * 10;
    let with = |change: fn(&mut Usage)| {
        let mut usage = Usage::new(100, 10);
        change(&mut usage);
        usage
    };
    let cases = [
        (Usage::new(100, 10), 200),
        (with(|usage| usage.cached_tokens = Some(100)), 200),
        (with(|usage| usage.total_tokens = 120), 200),
        (Usage::new(0, 0), worst),
        (Usage::new(100, 0), worst),
        (Usage::new(0, 10), worst),
        (with(|usage| usage.total_tokens = 0), worst),
        (with(|usage| (usage.cached_tokens, usage.cache_write_tokens) = (Some(60), Some(60))), worst),
    ];
    for (usage, cost) in cases {
        let agent = |model: ScriptedModel| Agent::builder(model).prices(prices()).build().unwrap();
        let model = || ScriptedModel::new().says("Hello").with_usage(usage);
        let answer = agent(model()).ask("Hello").await.unwrap();
        assert_eq!(micros(answer.cost()), Some(cost), "{usage:?}");
        let events: Vec<_> = agent(model()).ask("Hello").stream().collect().await;
        let Some(Ok(Event::Done(answer))) = events.last() else { panic!("{events:?}") };
        assert_eq!(micros(answer.cost()), Some(cost), "{usage:?}");
    }
    // Nothing was written.
    let model = ScriptedModel::new().says("").with_usage(Usage::new(100, 0));
    let agent = Agent::builder(model).prices(prices()).build().unwrap();
    let cost = match agent.ask("Hello").await {
        Ok(answer) => answer.cost(),
        Err(error) => error.run().cost(),
    };
    assert_eq!(micros(cost), Some(100));
}

#[tokio::test]
async fn a_request_that_was_rejected_costs_nothing() {
    struct Rejecting;
    impl ChatModel for Rejecting {
        fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
            Box::pin(async { Err(ModelError::new("status 400").unbilled()) })
        }
    }
    let agent = Agent::builder(Rejecting).prices(prices()).build().unwrap();
    let error = agent.ask("Hello").await.unwrap_err();
    assert_eq!(micros(error.run().cost()), Some(0));
}

#[tokio::test]
async fn the_model_must_be_known_unless_it_may_have_the_worst_price() {
    let table = r#"{"currency": "USD", "models": {"m": {"input": 1, "output": 1, "max_output_tokens": 10}}}"#;
    let prices = Prices::from_json(table).unwrap();
    let model = || ScriptedModel::new().says("Hello").with_usage(Usage::new(3, 4));
    let agent = Agent::builder(model()).prices(prices.clone()).build().unwrap();
    let error = agent.ask("Hello").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the request to the model failed: the price of the model `` is not known; add it to the table, or set \
         `OnUnknownPrice::WorstPrice`"
    );
    let unknown = error.to_string();
    let agent = Agent::builder(model())
        .prices(prices.clone())
        .limits(|l| l.max_cost(Cost::usd(1.0)))
        .build()
        .unwrap();
    assert_eq!(agent.ask("Hello").await.unwrap_err().to_string(), unknown);
    let prices = prices.unknown_models(OnUnknownPrice::WorstPrice);
    let agent = Agent::builder(model()).prices(prices).build().unwrap();
    assert_eq!(micros(agent.ask("Hello").await.unwrap().cost()), Some(7));
}

#[tokio::test]
async fn a_limit_shortens_the_answer() {
    let model = ScriptedModel::new()
        .expects(|request| request.options().max_output_tokens == Some(91))
        .replies(ChatResponse::new(AssistantMessage::text("He")).with_finish_reason(FinishReason::Length))
        .with_usage(Usage::new(20, 91));
    let agent =
        Agent::builder(model).prices(prices()).limits(|l| l.max_cost(Cost::usd(0.001))).build().unwrap();
    let answer = agent.ask("Hello").await.unwrap();
    assert_eq!((answer.finish_reason(), micros(answer.cost())), (&FinishReason::Length, Some(930)));
}

#[tokio::test]
async fn a_limited_request_names_the_longest_answer_that_is_reserved() {
    let limited = ScriptedModel::new()
        .expects(|request| request.options().max_output_tokens == Some(1_000))
        .says("Hello.")
        .with_usage(Usage::new(2, 0));
    let agent =
        Agent::builder(limited).prices(prices()).limits(|l| l.max_cost(Cost::usd(1.0))).build().unwrap();
    agent.ask("Hello").await.unwrap();
    let unlimited = ScriptedModel::new()
        .expects(|request| request.options().max_output_tokens.is_none())
        .says("Hello.")
        .with_usage(Usage::new(2, 0));
    Agent::builder(unlimited).prices(prices()).build().unwrap().ask("Hello").await.unwrap();
}

#[tokio::test]
async fn a_run_at_its_limit_is_resumed_with_a_higher_one() {
    let model = ScriptedModel::new()
        .calls("sum", r#"{"a": 1, "b": 2}"#)
        .with_usage(Usage::new(1_100, 40))
        .says("It is 3.")
        .with_usage(Usage::new(150, 5));
    let agent = Agent::builder(model.clone()).tools(tools![sum]).prices(prices()).build().unwrap();
    let error = agent.ask("What is 1 + 2?").limits(|l| l.max_cost(Cost::usd(0.002_5))).await.unwrap_err();
    let RunErrorKind::MaxCost { spent, limit, needed, .. } = error.kind() else { panic!("{error}") };
    assert_eq!((spent.micros(), limit.micros()), (1_500, 2_500));
    assert!(needed.micros() > 1_000 && error.is_resumable());
    assert_eq!((model.remaining(), micros(error.run().cost())), (1, Some(1_500)));
    assert_eq!(
        error.to_string(),
        format!(
            "the run has spent 0.0015 USD of 0.0025 USD, and the next request can cost {needed}; `resume` it with a higher `max_cost`"
        )
    );
    let run: Run = serde_json::from_str(&serde_json::to_string(error.run()).unwrap()).unwrap();
    let answer = agent.resume(run).limits(|l| l.max_cost(Cost::usd(0.1))).await.unwrap();
    assert_eq!((answer.text(), micros(answer.cost())), ("It is 3.", Some(1_700)));
}

#[tokio::test]
async fn calls_that_the_limit_cut_off_are_repeated_with_a_higher_one() {
    let call = ToolCall::new("c1", "sum", r#"{"a": 1, "#);
    let cut = ChatResponse::new(AssistantMessage::default().with_tool_calls([call]));
    let model = ScriptedModel::new()
        .replies(cut.with_finish_reason(FinishReason::Length))
        .with_usage(Usage::new(100, 100))
        .calls("sum", r#"{"a": 1, "b": 2}"#)
        .says("It is 3.");
    let agent = Agent::builder(model).tools(tools![sum]).prices(prices()).build().unwrap();
    let error = agent.ask("What is 1 + 2?").limits(|l| l.max_cost(Cost::usd(0.005))).await.unwrap_err();
    assert!(
        matches!(error.kind(), RunErrorKind::MaxCost { spent, .. } if spent.micros() == 1_100),
        "{error}"
    );
    assert_eq!((error.run().turns(), micros(error.run().cost())), (0, Some(1_100)));
    let answer = agent.resume(error.into_run()).limits(|l| l.max_cost(Cost::usd(1.0))).await.unwrap();
    assert_eq!(answer.text(), "It is 3.");
}

#[tokio::test]
async fn an_inner_agent_stops_at_its_own_limit_and_the_outer_run_continues() {
    let inner = Agent::builder(ScriptedModel::new()).build().unwrap();
    let inner = inner.as_tool("inner", "Thinks").limits(|_| RunLimits::new().max_cost(Cost::usd(0.000_1)));
    let model = ScriptedModel::new().calls("inner", r#"{"question": "Why?"}"#).says("I do not know.");
    let agent = Agent::builder(model).tools(inner).prices(prices()).build().unwrap();
    let answer = agent.ask("Why?").await.unwrap();
    let error = answer.tool_executions()[0].outcome().unwrap_err().to_string();
    assert_eq!(error, "the agent gave no answer: it reached one of its limits");
}

#[tokio::test]
async fn an_inner_agent_returns_at_the_limit_of_the_outer_run() {
    let scripted = ScriptedModel::new().says("Because.").with_usage(Usage::new(10, 1));
    let inner = Agent::builder(scripted).build().unwrap().as_tool("inner", "Thinks");
    let model = ScriptedModel::new()
        .calls("inner", r#"{"question": "Why?"}"#)
        .with_usage(Usage::new(1_300, 10))
        .says("Because.")
        .with_usage(Usage::new(100, 10));
    let agent = Agent::builder(model).tools(inner).prices(prices()).build().unwrap();
    let limit = Cost::usd(0.001_6);
    let error = agent.ask("Why?").limits(|l| l.max_cost(limit)).await.unwrap_err();
    assert!(
        matches!(error.kind(), RunErrorKind::MaxCost { spent, .. } if spent.micros() == 1_400),
        "{error}"
    );
    let answer = agent.resume(error.into_run()).limits(|l| l.max_cost(Cost::usd(1.0))).await.unwrap();
    assert_eq!(micros(answer.cost()), Some(1_620));
}

#[tokio::test]
async fn a_caller_that_drives_by_itself_is_charged_and_limited() {
    let model = ScriptedModel::new()
        .fails("the line is dead")
        .says("Hello")
        .with_usage(Usage::new(100, 10))
        .says("Hello")
        .with_usage(Usage::new(100, 10));
    let agent = Agent::builder(model.clone()).prices(prices()).build().unwrap();
    let mut run = agent.ask("Hello").limits(|l| l.max_cost(Cost::usd(0.020_3))).start();
    for _ in 0..2 {
        let Step::CallModel(request) = run.next().await.unwrap() else { panic!() };
        if let Ok(response) = request.send_to(agent.model()).await {
            run.record_response(response).await.unwrap();
        }
    }
    assert_eq!(micros(run.run().cost()), Some(10_085 + 200));
    run.reject_answer("again").unwrap();
    let Step::CallModel(request) = run.next().await.unwrap() else { panic!() };
    request.send_to(agent.model()).await.unwrap();
    drop(request);
    // It was sent, and its response was not recorded.
    let Step::CallModel(request) = run.next().await.unwrap() else { panic!() };
    let error = request.send_to(agent.model()).await.unwrap_err();
    assert_eq!(error.to_string(), "request 4 is beyond the end of the script");
    assert_eq!(micros(run.run().cost()), Some(10_085 + 400));
    // A request that is sent in another way has the cost of its usage.
    let agent = Agent::builder(ScriptedModel::new()).prices(prices()).build().unwrap();
    let mut run = agent.ask("Hello").start();
    assert!(matches!(run.next().await.unwrap(), Step::CallModel(_)));
    let response = ChatResponse::new(AssistantMessage::text("Hello")).with_usage(Usage::new(100, 10));
    run.record_response(response).await.unwrap();
    assert_eq!(micros(run.finish().await.unwrap().cost()), Some(200));
}

#[tokio::test]
async fn a_response_that_its_caller_does_not_record_is_charged() {
    let model = || ScriptedModel::new().says("Hello").with_usage(Usage::new(100, 10)).says("Hello again");
    let agent = || Agent::builder(model()).prices(prices()).build().unwrap();
    let mut run = agent().ask("Hello").start();
    assert!(matches!(run.next().await.unwrap(), Step::CallModel(_)));
    run.call_model().await.unwrap();
    assert_eq!(micros(run.into_run().cost()), Some(200));
    let mut run = agent().ask("Hello").start();
    assert!(matches!(run.next().await.unwrap(), Step::CallModel(_)));
    run.call_model().await.unwrap();
    assert!(matches!(run.next().await.unwrap(), Step::CallModel(_)));
    let response = run.call_model().await.unwrap();
    run.record_response(response).await.unwrap();
    assert_eq!(micros(run.finish().await.unwrap().cost()), Some(200 + 10_085));
}

#[tokio::test]
async fn a_limit_without_prices_is_an_error() {
    let needs_prices =
        "the request to the model failed: a cost limit needs prices; set `AgentBuilder::prices`";
    let agent = || Agent::builder(ScriptedModel::new().says("Hello"));
    let error = agent().limits(|l| l.max_cost(Cost::usd(1.0))).build().unwrap_err();
    assert_eq!(error.to_string(), "a cost limit needs prices; set `AgentBuilder::prices`");
    let options = ModelOptions::default().with_max_output_tokens(10);
    for agent in [agent().options(options), agent()] {
        let error =
            agent.build().unwrap().ask("Hello").limits(|l| l.max_cost(Cost::usd(1.0))).await.unwrap_err();
        assert_eq!(error.to_string(), needs_prices);
    }
    let budget = Budget::cost(InMemoryStore::new(), Cost::usd(1.0), Duration::from_secs(60)).key("ada");
    let error = agent().build().unwrap().ask("Hello").budget(budget).await.unwrap_err();
    assert_eq!(error.to_string(), needs_prices);
}

#[tokio::test]
async fn an_image_counts_as_much_as_any_model_reads_of_one() {
    let image = Image::from_url("https://example.org/a.png");
    let agent = Agent::builder(ScriptedModel::new().fails("the line is dead")).prices(prices()).build();
    let error = agent.unwrap().ask(Content::from("What is it?").with_part(image)).await.unwrap_err();
    assert_eq!(micros(error.run().cost()), Some(64 + 16 + 11 + 50_000 + 10_000));
}

/// A limit or a budget needs the longest answer. It is missed when the agent is built if its model has nobody to ask, and otherwise before the
/// first request, which is no error of the model.
#[tokio::test]
async fn a_limit_needs_the_longest_answer() {
    /// Has a provider, which does not know it.
    struct Named(ScriptedModel);
    impl ChatModel for Named {
        fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
            self.0.chat(request)
        }

        fn model_name(&self) -> Option<&str> {
            Some("named")
        }
    }
    let prices = |longest: Option<u64>| {
        let prices = ModelPrices::new(1.0, 1.0);
        let prices = longest.map_or(prices, |longest| prices.with_max_output_tokens(longest));
        Prices::from_fn(Currency::USD, move |_, _| Some(prices))
    };
    let model = || ScriptedModel::new().says("Hello");
    let key = || Budget::tokens(InMemoryStore::new(), 1_000, Duration::from_secs(60)).key("ada");
    let text = |name: &str| {
        format!(
            "a limit of cost or a budget needs the longest answer of the model{name}, which is not known; set `max_output_tokens` in its \
             options or in the table of prices"
        )
    };
    let limited = || Agent::builder(model()).prices(prices(None)).limits(|l| l.max_cost(Cost::usd(1.0)));
    for builder in [limited(), Agent::builder(model()).budget(key())] {
        let error = builder.build().unwrap_err();
        let BuildErrorKind::UnknownAnswerLength { model, .. } = error.kind() else { panic!("{error}") };
        assert_eq!((&**model, error.to_string()), ("", text("")));
    }
    let options = ModelOptions::default().with_max_output_tokens(10);
    limited().options(options).build().unwrap();
    limited().prices(prices(Some(10))).build().unwrap();
    for (agent, name) in [
        (Agent::builder(model()).build(), ""),
        (Agent::builder(Named(model())).build(), " `named`"),
        (Agent::builder(Fallback::new(model())).build(), ""),
    ] {
        let error = agent.unwrap().ask("Hello").budget(key()).await.unwrap_err();
        assert!(matches!(error.kind(), RunErrorKind::UnknownAnswerLength { .. }), "{error}");
        assert_eq!((error.to_string(), error.is_resumable()), (text(name), true));
    }
}

#[tokio::test]
async fn a_stored_run_knows_what_a_dropped_request_can_have_cost() {
    struct Silent;
    impl ChatModel for Silent {
        fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
            Box::pin(std::future::pending())
        }
    }
    let store = InMemoryStore::new();
    let agent = Agent::builder(Silent).prices(prices()).run_store(store.clone()).build().unwrap();
    // No more than the limit is reserved.
    for (limit, cost) in [(1.0, 64 + 16 + 5 + 10_000), (0.002, 2_000)] {
        let mut ask = Box::pin(agent.ask("Hello").limits(|l| l.max_cost(Cost::usd(limit))).into_future());
        // Stores in memory are never pending.
        assert!(futures_util::poll!(&mut ask).is_pending());
        let mut runs = stored_runs(&agent).await;
        runs.retain(|stored| stored.run.limits().max_cost == Some(Cost::usd(limit)));
        let run = runs.remove(0).run;
        assert_eq!(micros(run.cost()), Some(cost));
        // It stays charged, however the run continues.
        let model = ScriptedModel::new().says("Hello").with_usage(Usage::new(100, 10));
        let agent = Agent::builder(model).prices(prices()).build().unwrap();
        let mut run = agent.resume(run).limits(|l| l.max_cost(Cost::usd(1.0))).start();
        let Step::CallModel(request) = run.next().await.unwrap() else { panic!() };
        let response = request.send_to(agent.model()).await.unwrap();
        run.record_response(response).await.unwrap();
        assert_eq!(micros(run.finish().await.unwrap().cost()), Some(cost + 200));
    }
}

/// A provider that bills each attempt, and does what the next bytes of a script say.
#[derive(Clone)]
struct Billing {
    script: Arc<Mutex<Vec<u8>>>,
    bill: Arc<AtomicU64>,
    price: u64,
}

impl Billing {
    fn next(&self) -> u8 {
        self.script.lock().unwrap().pop().unwrap_or(0)
    }

    /// Bills an attempt: at most all bytes of the request, what was answered of it before, and the longest answer.
    fn bill(&self, request: &ChatRequest<'_>, answered: u64) -> Usage {
        let bytes: usize = request.messages().iter().map(|message| message.text().len()).sum();
        let longest = u64::from(request.options().max_output_tokens.unwrap_or(LONGEST).min(LONGEST));
        let usage = Usage::new(bytes as u64 + answered, longest * u64::from(self.next()) / 255);
        self.bill.fetch_add((usage.input_tokens + 10 * usage.output_tokens) * self.price, SeqCst);
        usage
    }

    async fn answer(&self, request: &ChatRequest<'_>) -> Result<ChatResponse, ModelError> {
        let unavailable = || ModelError::new("gone").with_kind(ModelErrorKind::Unavailable);
        // The answer in parts; providers report their sum.
        let mut parts = Usage::default();
        let mut answered = 0;
        while self.next().is_multiple_of(4) && !self.script.lock().unwrap().is_empty() {
            // As providers do, an attempt that is not sent is reported as one that costs nothing.
            let unsent = |error: ModelError| error.unbilled();
            match self.next() % 4 {
                0 => request.repeat(EarlierAttempt::Unbilled).await?,
                1 => {
                    let part = self.bill(request, answered);
                    answered += part.output_tokens;
                    parts += part;
                    request.repeat(EarlierAttempt::Continued).await.map_err(unsent)?;
                }
                2 => {
                    answered += self.bill(request, answered).output_tokens;
                    request.repeat(EarlierAttempt::Unusable).await.map_err(unsent)?;
                }
                _ => {
                    self.bill(request, answered);
                    request.repeat(EarlierAttempt::Unknown).await.map_err(unsent)?;
                }
            }
        }
        match self.next() % 8 {
            0 => return Err(unavailable().unbilled()),
            1 => {
                self.bill(request, answered);
                return Err(unavailable());
            }
            _ => {}
        }
        // Others work meanwhile.
        tokio::task::yield_now().await;
        let mut usage = self.bill(request, answered);
        usage += parts;
        let calls = match request.tools().is_empty() || self.next().is_multiple_of(3) {
            true => 0,
            false => 1 + self.next() % 3,
        };
        let calls = (0..calls).map(|number| {
            let tool = &request.tools()[usize::from(number) % request.tools().len()];
            ToolCall::new(format!("c{number}"), tool.name(), r#"{"question": "Why?"}"#)
        });
        let response = ChatResponse::new(AssistantMessage::text("Well").with_tool_calls(calls));
        let response = match self.next() % 5 {
            0 => response.with_finish_reason(FinishReason::Length),
            _ => response,
        };
        Ok(if self.next().is_multiple_of(4) { response } else { response.with_usage(usage) })
    }
}

impl ChatModel for Billing {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(self.answer(request))
    }

    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        let cut = async {
            let response = self.answer(request).await;
            // Cut off without an error, after it was billed.
            let is_cut = response.is_ok() && self.next().is_multiple_of(6);
            let first = self.next().is_multiple_of(2).then(|| Ok(Delta::Text("We".into())));
            let last = (!is_cut).then(|| response.map(Delta::Done));
            stream::iter(first.into_iter().chain(last))
        };
        ChatStream::new(stream::once(cut).flatten())
    }
}

const LONGEST: u32 = 200;

/// Asks in a tree of agents, resuming what can be resumed, and returns what the run believes to have spent.
async fn spend(script: Vec<u8>, limit: u64, is_streamed: bool, bill: Arc<AtomicU64>) -> u64 {
    let script = Arc::new(Mutex::new(script));
    let model = |price| Billing { script: Arc::clone(&script), bill: Arc::clone(&bill), price };
    let prices = |price: u32| {
        let prices =
            ModelPrices::new(price.into(), f64::from(price) * 10.0).with_max_output_tokens(LONGEST.into());
        Prices::from_fn(Currency::USD, move |_, _| Some(prices))
    };
    let leaf = Agent::builder(model(1)).prices(prices(1)).build().unwrap();
    let middle = Agent::builder(Fallback::new(model(2)).or(model(2)).retry_after(Duration::ZERO))
        .prices(prices(2))
        .tools(leaf.as_tool("leaf", "Thinks").limits(|_| RunLimits::new().max_cost(Cost::usd(0.003))))
        .build()
        .unwrap();
    let agent = Agent::builder(Fallback::new(model(1)).or(model(1)).retry_after(Duration::ZERO))
        .prices(prices(1))
        .tools(leaf.as_tool("leaf", "Thinks"))
        .tools(middle.as_tool("middle", "Thinks more"))
        .limits(|l| l.max_cost(Cost::new(limit, Currency::USD)))
        .build()
        .unwrap();
    let (mut ask, mut last) = (agent.ask("Why?"), 0);
    for _ in 0..10 {
        let outcome = match is_streamed {
            true => {
                let (mut events, mut outcome) = (ask.stream(), None);
                while let Some(event) = events.next().await {
                    match event {
                        Ok(Event::Done(answer)) => outcome = Some(Ok(answer)),
                        Ok(_) => {}
                        Err(error) => outcome = Some(Err(error)),
                    }
                }
                outcome.unwrap()
            }
            false => ask.await,
        };
        match outcome {
            Ok(answer) => return answer.cost().map_or(0, Cost::micros),
            Err(error) if error.is_resumable() => {
                let state = serde_json::to_string(error.run()).unwrap();
                last = error.run().cost().map_or(0, Cost::micros);
                if matches!(error.kind(), RunErrorKind::MaxCost { .. }) {
                    break;
                }
                ask = agent.resume(serde_json::from_str(&state).unwrap());
            }
            Err(error) => return error.run().cost().map_or(0, Cost::micros),
        }
    }
    last
}

proptest! {
    #![proptest_config(cases(300, 5_000))]

    #[test]
    fn a_run_never_spends_more_than_its_limit(
        script in proptest::collection::vec(any::<u8>(), 0..200),
        limit in 0_u64..40_000,
        is_streamed in any::<bool>(),
    ) {
        let bill = Arc::new(AtomicU64::new(0));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let spent = runtime.block_on(spend(script, limit, is_streamed, Arc::clone(&bill)));
        let bill = bill.load(SeqCst);
        prop_assert!(bill <= limit, "billed {bill} of {limit}");
        prop_assert!(spent <= limit, "spent {spent} of {limit}");
        prop_assert!(bill <= spent, "billed {bill}, spent {spent}");
    }
}

/// A turn with one call saves a run three times: before its request, what it may cost included, before its call, and after that.
#[tokio::test]
async fn a_turn_saves_its_run_three_times() {
    for limits in [RunLimits::new(), RunLimits::new().max_cost(Cost::usd(1.0))] {
        let saves = async |turns: u32| {
            let store = Counting::new(Arc::new(InMemoryStore::new()));
            let calls =
                |model: ScriptedModel, turn| model.calls("sum", format!(r#"{{"a": {turn}, "b": 1}}"#));
            let model = (0..turns).fold(ScriptedModel::new(), calls).says("Done.");
            let agent =
                Agent::builder(model.with_usage(Usage::new(3, 4))).tools(tools![sum]).prices(prices());
            let agent = agent.run_store(store.clone()).build().unwrap();
            agent.ask("Go").limits(|_| limits.clone()).await.unwrap();
            store.take().iter().filter(|operation| *operation == "append_run").count()
        };
        assert_eq!(saves(5).await - saves(2).await, 3 * 3);
    }
}
