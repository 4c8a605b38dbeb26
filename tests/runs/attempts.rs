//! What attempts of one request cost: continued, repeated, at the same time, created by layers, and in flight.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use futures_util::future::join;
use futures_util::stream;
use serde_json::json;
use tests::support::stores::stored_runs;
use tool_core::layer::{Layer, LayerPhase, NextLayer};
use tool_core::memory::{Budget, InMemoryStore};
use tool_core::model::{
    AssistantMessage, ChatRequest, ChatResponse, ChatStream, Cost, Currency, Fallback, ModelError,
    ModelOptions, ModelPrices, Prices, Usage,
};
use tool_core::provider::{EarlierAttempt, ModelFuture, ModelInfo, ProviderData};
use tool_core::run::Step;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ChatModel, Message, RunErrorKind, ToolCall};

/// A dollar for a million tokens of input, and ten for output: 1 and 10 millionths of a dollar each.
fn prices() -> Prices {
    Prices::from_fn(Currency::USD, |_, _| Some(ModelPrices::new(1.0, 10.0).with_max_output_tokens(1_000)))
}

/// The worst case of the request `Hello`: 64 tokens for the request, 16 for the message, 5 bytes; and the longest answer.
const WORST: u64 = 64 + 16 + 5 + 1_000 * 10;

/// Repeats its request for these reasons, and then fails without a bill for the last time.
struct Repeating(&'static [EarlierAttempt]);

impl ChatModel for Repeating {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move {
            for earlier in self.0 {
                // Providers report it as a request that was not sent.
                request
                    .repeat(*earlier)
                    .await
                    .map_err(|error| ModelError::new(error.to_string()).unbilled())?;
            }
            Err(ModelError::new("status 429").unbilled())
        })
    }
}

#[tokio::test]
async fn what_was_answered_before_the_last_attempt_is_charged() {
    use EarlierAttempt::{Continued, Unbilled, Unknown, Unusable};
    let table: [(&[EarlierAttempt], u64); 7] = [
        (&[Unbilled], 0),
        (&[Unknown], WORST),
        (&[Continued], WORST),
        // The third one reads two answers.
        (&[Continued, Continued], 3 * WORST),
        // The same request again, which is as long as the second one.
        (&[Continued, Unknown], 3 * WORST),
        (&[Continued, Unknown, Unknown], 5 * WORST),
        (&[Unusable, Unknown], 3 * WORST),
    ];
    for (repeated, cost) in table {
        let agent =
            Agent::builder(Repeating(repeated)).prices(prices()).limits(|l| l.max_cost(Cost::usd(1.0)));
        let error = agent.build().unwrap().ask("Hello").await.unwrap_err();
        assert_eq!(error.run().cost(), Some(Cost::new(cost, Currency::USD)), "{repeated:?}");
    }
}

#[tokio::test]
async fn a_reply_that_is_too_dear_to_continue_is_charged() {
    let budget = Budget::cost(InMemoryStore::new(), Cost::usd(1.0), std::time::Duration::from_secs(3_600));
    let limit = Cost::new(3 * WORST - 1, Currency::USD);
    let agent = Agent::builder(Repeating(&[EarlierAttempt::Continued]))
        .prices(prices())
        .limits(|l| l.max_cost(limit))
        .build();
    let error = agent.unwrap().ask("Hello").budget(budget.key("ada")).await.unwrap_err();
    assert!(
        matches!(error.kind(), RunErrorKind::MaxCost { spent, .. } if spent.micros() == WORST),
        "{error}"
    );
    assert_eq!(error.run().cost(), Some(Cost::new(WORST, Currency::USD)));
    assert_eq!(budget.key("ada").left().await.unwrap(), 1_000_000 - WORST);
}

/// Sends a request of its own.
struct Summarizing;

impl Layer for Summarizing {
    fn name(&self) -> &str {
        "summarizing"
    }

    fn sees(&self, phase: LayerPhase) -> bool {
        phase == LayerPhase::Model
    }

    fn model<'a>(&'a self, request: ChatRequest<'a>, next: NextLayer<'a>) -> ChatStream<'a> {
        let text = request.messages().iter().map(Message::text).collect::<String>();
        next.call(ChatRequest::new([Message::user(text)]))
    }
}

#[tokio::test]
async fn a_request_of_a_layer_is_counted_and_limited() {
    let model = ScriptedModel::new().says("Hello").with_usage(Usage::new(100, 10)).says("never");
    let agent = Agent::builder(model.clone()).prices(prices()).layer(Summarizing).build().unwrap();
    assert_eq!(agent.ask("Hello").await.unwrap().cost(), Some(Cost::new(200, Currency::USD)));
    let error = agent.ask("Hello").limits(|l| l.max_cost(Cost::new(100, Currency::USD))).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::MaxCost { .. }), "{error}");
    assert_eq!(model.remaining(), 1);
}

/// Answers with this usage after others had their turn.
struct Slow(&'static str, Usage);

impl ChatModel for Slow {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async {
            tokio::task::yield_now().await;
            Ok(ChatResponse::new(AssistantMessage::text(self.0)).with_usage(self.1))
        })
    }

    fn model_name(&self) -> Option<&str> {
        Some(self.0)
    }
}

/// Asks two models at the same time.
struct Hedging(Slow);

impl Layer for Hedging {
    fn name(&self) -> &str {
        "hedging"
    }

    fn sees(&self, phase: LayerPhase) -> bool {
        phase == LayerPhase::Model
    }

    fn model<'a>(&'a self, request: ChatRequest<'a>, next: NextLayer<'a>) -> ChatStream<'a> {
        let (mut first, mut second) = (next.call(request.clone()), next.with_model(&self.0).call(request));
        ChatStream::new(stream::once(async move {
            match join(first.next(), second.next()).await {
                (Some(Ok(first)), Some(Ok(_))) => Ok(first),
                other => panic!("{other:?}"),
            }
        }))
    }
}

#[tokio::test]
async fn attempts_at_the_same_time_are_charged_each() {
    let prices = Prices::from_fn(Currency::USD, |model, _| {
        let factor = if model == "cheap" { 1.0 } else { 5.0 };
        Some(ModelPrices::new(factor, factor * 10.0).with_max_output_tokens(1_000))
    });
    let agent = Agent::builder(Slow("cheap", Usage::new(100, 10)))
        .prices(prices)
        .layer(Hedging(Slow("dear", Usage::new(100, 900))))
        .build()
        .unwrap();
    let answer = agent.ask("Hello").await.unwrap();
    assert_eq!(answer.cost(), Some(Cost::new(200 + 5 * (100 + 9_000), Currency::USD)));
}

#[tokio::test]
async fn a_cost_that_is_not_known_at_the_end_keeps_its_reservation() {
    struct Reloading(Arc<AtomicBool>);
    impl ChatModel for Reloading {
        fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
            self.0.store(true, SeqCst);
            let response = ChatResponse::new(AssistantMessage::text("Hello")).with_usage(Usage::new(1, 1));
            Box::pin(async { Ok(response) })
        }
    }
    let is_reloaded = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_reloaded);
    let prices = Prices::from_fn(Currency::USD, move |_, _| {
        (!seen.load(SeqCst)).then(|| ModelPrices::new(1.0, 10.0).with_max_output_tokens(1_000))
    });
    let budget = Budget::cost(InMemoryStore::new(), Cost::usd(1.0), std::time::Duration::from_secs(3_600));
    let agent = Agent::builder(Reloading(is_reloaded)).prices(prices).build().unwrap();
    let answer = agent.ask("Hello").budget(budget.key("ada")).await.unwrap();
    assert_eq!(answer.cost(), Some(Cost::new(WORST, Currency::USD)));
    assert_eq!(budget.key("ada").left().await.unwrap(), 1_000_000 - WORST);
}

#[tokio::test]
async fn a_caller_that_drives_by_itself_gets_the_cost_with_the_run() {
    let agent =
        Agent::builder(ScriptedModel::new().fails("the line is dead")).prices(prices()).build().unwrap();
    let mut run = agent.ask("Hello").start();
    let Step::CallModel(request) = run.next().await.unwrap() else { panic!() };
    request.send_to(agent.model()).await.unwrap_err();
    drop(request);
    assert_eq!(run.into_run().cost(), Some(Cost::new(WORST, Currency::USD)));
}

/// Never answers, and reports its longest answer.
struct Silent;

impl ChatModel for Silent {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(std::future::pending())
    }

    fn model_info(&self) -> ModelFuture<'_, Option<ModelInfo>> {
        let mut info = ModelInfo::default();
        info.max_output_tokens = Some(1_000);
        Box::pin(async { Ok(Some(info)) })
    }
}

#[tokio::test]
async fn a_stored_run_knows_the_worst_case_of_every_kind_of_model() {
    let prices = || Prices::from_fn(Currency::USD, |_, _| Some(ModelPrices::new(1.0, 10.0)));
    let models: [(Box<dyn ChatModel>, u64); 2] = [
        (Box::new(Silent), WORST),
        // How often it sends the request, and to which models, is not known.
        (Box::new(Fallback::new(Silent).or(Silent)), 500_000),
    ];
    for (model, cost) in models {
        let store = InMemoryStore::new();
        let agent = Agent::builder(model)
            .prices(prices())
            .run_store(store)
            .limits(|l| l.max_cost(Cost::usd(0.5)))
            .build();
        let agent = agent.unwrap();
        let mut ask = Box::pin(agent.ask("Hello").into_future());
        assert!(futures_util::poll!(&mut ask).is_pending());
        let runs = stored_runs(&agent).await;
        assert_eq!(runs[0].run.cost(), Some(Cost::new(cost, Currency::USD)));
    }
}

#[tokio::test]
async fn what_the_provider_counts_has_a_margin() {
    struct Counting;
    impl ChatModel for Counting {
        fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
            let limit = request.options().max_output_tokens;
            Box::pin(async move { Ok(ChatResponse::new(AssistantMessage::text(format!("{limit:?}")))) })
        }

        fn count_tokens<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a, Option<u64>> {
            Box::pin(async { Ok(Some(1_000)) })
        }
    }
    let agent = Agent::builder(Counting)
        .prices(prices())
        .limits(|l| l.max_cost(Cost::new(1_300, Currency::USD)))
        .build();
    let answer = agent.unwrap().ask("a".repeat(2_000)).await.unwrap();
    // 1,050 for the input.
    assert_eq!(answer.text(), "Some(25)");
}

#[tokio::test]
async fn an_input_that_the_provider_has_stored_counts_as_much_as_any() {
    for name in ["previous_response_id", "conversation", "prompt"] {
        let prices = ModelPrices::new(1.0, 10.0).with_max_output_tokens(1_000).with_context_window(5_000);
        let agent = Agent::builder(ScriptedModel::new().fails("the line is dead"))
            .options(ModelOptions::default().with_extra(name, "x"))
            .prices(Prices::from_fn(Currency::USD, move |_, _| Some(prices)))
            .limits(|l| l.max_cost(Cost::usd(1.0)));
        let error = agent.build().unwrap().ask("Hello").await.unwrap_err();
        assert_eq!(error.run().cost(), Some(Cost::new(5_000 + 10_000, Currency::USD)));
    }
}

#[tokio::test]
async fn what_providers_expect_back_is_input() {
    let data = || Some(ProviderData::new("acme", json!({ "signature": "0123456789" }).into()));
    let cost = async |reply: AssistantMessage| {
        let history = [Message::user("Hello"), Message::Assistant(reply)];
        let agent = Agent::builder(ScriptedModel::new().fails("the line is dead")).prices(prices()).build();
        let error = agent.unwrap().ask("Hello").history(history).await.unwrap_err();
        error.run().cost().unwrap().micros()
    };
    let mut call = ToolCall::new("c", "sum", "{}");
    let plain = cost(AssistantMessage::default().with_tool_calls([call.clone()])).await;
    call.provider_data = data();
    let mut reply = AssistantMessage::default().with_tool_calls([call]);
    assert_eq!(cost(reply.clone()).await - plain, 26);
    reply.provider_data = data();
    assert_eq!(cost(reply).await - plain, 2 * 26);
}

#[tokio::test]
async fn extra_fields_are_input_and_cannot_lengthen_the_answer() {
    let ask = |name: &str, extra: &str| {
        let options = ModelOptions::default().with_extra(name, extra);
        let agent = Agent::builder(ScriptedModel::new().fails("the line is dead")).options(options);
        agent.prices(prices()).limits(|l| l.max_cost(Cost::usd(1.0))).build().unwrap().ask("Hello")
    };
    let error = ask("instructions", "Be brief.").await.unwrap_err();
    // The field is `{"instructions":"Be brief."}`.
    assert_eq!(error.run().cost(), Some(Cost::new(WORST + 28, Currency::USD)));
    for name in ["max_tokens", "max_completion_tokens", "max_output_tokens", "n"] {
        let error = ask(name, "9").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "the request to the model failed: the extra field `{name}` can exceed the limit of cost; leave it out, and limit answers by \
                 `ModelOptions::max_output_tokens`"
            )
        );
        assert_eq!(error.run().cost(), None);
    }
}

#[tokio::test]
async fn a_refusal_is_not_the_reason_of_a_later_error() {
    let model = Fallback::new(Repeating(&[EarlierAttempt::Unknown]))
        .or(ScriptedModel::new().fails("the line is dead"))
        .on_error_if(|_| true);
    let limit = Cost::new(WORST + 5_000, Currency::USD);
    let agent = Agent::builder(model).prices(prices()).limits(|l| l.max_cost(limit)).build().unwrap();
    let error = agent.ask("Hello").await.unwrap_err();
    assert_eq!(error.to_string(), "the request to the model failed: the line is dead");
}

#[tokio::test]
async fn an_agent_that_takes_a_run_over_brings_its_budget() {
    let budget = Budget::tokens(InMemoryStore::new(), 1_000_000, std::time::Duration::from_secs(3_600));
    let model = || ScriptedModel::new().says("Paid.").with_usage(Usage::new(100, 10));
    let desk = |billing: &Agent| {
        let model = ScriptedModel::new().calls("billing", "{}").with_usage(Usage::new(100, 10));
        let agent = Agent::builder(model).prices(prices()).budget(budget.key("all"));
        agent.handoff_to("billing", "Knows bills", billing).build().unwrap()
    };
    let billing = Agent::builder(model()).prices(prices()).budget(budget.key("all"));
    let billing = billing.budget(budget.key("billing")).build().unwrap();
    let answer = desk(&billing).ask("Is it paid?").await.unwrap();
    assert_eq!(answer.cost(), Some(Cost::new(400, Currency::USD)));
    // A budget that both have is charged once.
    assert_eq!(budget.key("all").left().await.unwrap(), 1_000_000 - 220);
    assert_eq!(budget.key("billing").left().await.unwrap(), 1_000_000 - 110);
}

#[tokio::test]
async fn a_budget_of_both_agents_is_charged_once() {
    let budget = Budget::tokens(InMemoryStore::new(), 1_000_000, std::time::Duration::from_secs(3_600));
    let usage = Usage::new(100, 10);
    let inner = Agent::builder(ScriptedModel::new().says("Yes.").with_usage(usage)).prices(prices());
    let inner = inner.budget(budget.key("all")).build().unwrap();
    let model = ScriptedModel::new().calls("inner", r#"{"question": "Why?"}"#).with_usage(usage);
    let agent = Agent::builder(model.says("Yes.").with_usage(usage)).prices(prices());
    let agent = agent.budget(budget.key("all")).tools(inner.as_tool("inner", "Thinks")).build().unwrap();
    agent.ask("Why?").await.unwrap();
    assert_eq!(budget.key("all").left().await.unwrap(), 1_000_000 - 330);
}
