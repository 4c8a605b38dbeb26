//! Budgets across runs and processes.

use std::future::IntoFuture;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tests::support::stores::postgres;
use tokio::sync::Semaphore;
use tool_core::agent::AgentBuilder;
use tool_core::content::{Content, File};
use tool_core::memory::{Budget, InMemoryStore};
use tool_core::model::{
    AssistantMessage, ChatRequest, ChatResponse, Cost, Currency, ModelOptions, ModelPrices, Prices, Usage,
};
use tool_core::provider::ModelFuture;
use tool_core::run::Run;
use tool_core::signatures::{KeyedBudget, Timestamp};
use tool_core::store::{BudgetPeriod, BudgetRemainder, BudgetReservation, BudgetStore, StoreFuture};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ChatModel, Message, RunErrorKind, SqliteStore, tool, tools};

const DAY: Duration = Duration::from_secs(24 * 3_600);

async fn stores() -> [(Arc<dyn BudgetStore>, Budget); 2] {
    let sqlite = SqliteStore::in_memory().await.unwrap();
    let memory = InMemoryStore::new();
    [
        (Arc::new(memory.clone()), Budget::tokens(memory, 100, DAY)),
        (Arc::new(sqlite.clone()), Budget::tokens(sqlite, 100, DAY)),
    ]
}

#[tokio::test]
async fn a_store_reserves_settles_and_expires() {
    for (store, budget) in stores().await {
        let hour = |hours: u64| {
            Timestamp::from_millis(1_800_000_000_000 / 86_400_000 * 86_400_000 + hours * 3_600_000)
        };
        let (ada, bob) = (budget.key("ada"), budget.key("bob"));
        let period = ada.period_at(hour(1));
        assert_eq!((period.starts, period.ends), (hour(0), hour(24)));
        let first = store.reserve(&period, 10, 60).await.unwrap().unwrap();
        assert_eq!(first.amount, 60);
        // What is left is granted, unless it is too little.
        assert_eq!(store.reserve(&period, 41, 60).await.unwrap(), None);
        let second = store.reserve(&period, 40, 60).await.unwrap().unwrap();
        assert_eq!((second.amount, store.spent(&period).await.unwrap()), (40, 100));
        store.settle(&first, 5, hour(1)).await.unwrap();
        store.settle(&first, 5, hour(1)).await.unwrap();
        assert_eq!(store.spent(&period).await.unwrap(), 45);
        // Expired reservations count as spent.
        store.settle(&second, 0, hour(3)).await.unwrap();
        assert_eq!(store.spent(&ada.period_at(hour(3))).await.unwrap(), 45);
        // A response can use more than was reserved.
        let third = store.reserve(&ada.period_at(hour(3)), 1, 10).await.unwrap().unwrap();
        store.settle(&third, 70, hour(3)).await.unwrap();
        assert_eq!(store.reserve(&ada.period_at(hour(4)), 1, 1).await.unwrap(), None);
        // Other keys, periods and units have amounts of their own.
        assert_eq!(store.spent(&bob.period_at(hour(3))).await.unwrap(), 0);
        let next = ada.period_at(hour(24));
        assert_eq!((next.starts, store.reserve(&next, 1, 1).await.unwrap().unwrap().amount), (hour(24), 1));
        assert_eq!(store.spent(&next).await.unwrap(), 1);
        // The clock of another process may not have reached the end of the period.
        assert_eq!(store.spent(&period).await.unwrap(), 115);
        store.reserve(&ada.period_at(hour(25)), 1, 1).await.unwrap().unwrap();
        assert_eq!(store.spent(&period).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn the_highest_limit_can_be_reserved_and_settled() {
    let sqlite = SqliteStore::in_memory().await.unwrap();
    let mut stores = vec![Arc::new(InMemoryStore::new()) as Arc<dyn BudgetStore>, Arc::new(sqlite)];
    stores.extend(postgres().await.map(|store| Arc::new(store) as _));
    for store in stores {
        let period =
            Budget::tokens(InMemoryStore::new(), u64::MAX, DAY).key("ada").period_at(Timestamp::now());
        let all = store.reserve(&period, 1, u64::MAX).await.unwrap().unwrap();
        assert_eq!(store.reserve(&period, 1, u64::MAX).await.unwrap(), None);
        store.settle(&all, 10, period.now).await.unwrap();
        assert_eq!(store.spent(&period).await.unwrap(), 10);
        // A usage that cannot be true uses the budget up until the period ends.
        let (one, other) = (store.reserve(&period, 1, 5).await, store.reserve(&period, 1, 5).await);
        for reservation in [one, other] {
            store.settle(&reservation.unwrap().unwrap(), u64::MAX, period.now).await.unwrap();
        }
        assert!(store.spent(&period).await.unwrap() >= i64::MAX.unsigned_abs());
        assert_eq!(store.reserve(&period, 1, 1).await.unwrap(), None);
    }
}

fn agent(model: ScriptedModel) -> Agent {
    let options = ModelOptions::default().with_max_output_tokens(500);
    let prices = Prices::from_fn(Currency::EUR, |_, _| Some(ModelPrices::new(1.0, 10.0)));
    Agent::builder(model).options(options).prices(prices).build().unwrap()
}

#[tokio::test]
async fn a_question_is_charged_to_its_budget() {
    let store = InMemoryStore::new();
    let budget = Budget::tokens(store.clone(), 1_000, DAY);
    let model = ScriptedModel::new()
        .says("Hello")
        .with_usage(Usage::new(40, 10))
        .expects(|request| request.options().max_output_tokens.is_some_and(|limit| limit < 500))
        .says("Good")
        .with_usage(Usage::new(40, 460))
        .says("never");
    let agent = agent(model.clone());
    let key = budget.key("ada");
    agent.ask("Hello").budget(key.clone()).await.unwrap();
    assert_eq!(key.left().await.unwrap(), 950);
    let small = Budget::tokens(store, 550, DAY).key("ada");
    assert_eq!(small.left().await.unwrap(), 500);
    agent.ask("Good morning, how are you?").budget(small.clone()).await.unwrap();
    let error = agent.ask("Hello").budget(small).await.unwrap_err();
    let RunErrorKind::Budget { key, ends, .. } = error.kind() else { panic!("{error}") };
    let midnight = Timestamp::now().as_millis() / 86_400_000 * 86_400_000 + 86_400_000;
    assert_eq!((&**key, ends.as_millis(), error.is_resumable()), ("ada", midnight, true));
    let text = error.to_string();
    assert!(text.starts_with("the budget of `ada` is used up; its period ends in "), "{text}");
    assert_eq!(model.remaining(), 1);
    // Another key has a budget of its own, and a resumed run can have another one.
    let answer = agent.resume(error.into_run()).budget(budget.key("bob")).await.unwrap();
    assert_eq!(answer.text(), "never");
}

#[tokio::test]
async fn agents_inside_are_charged_too_and_failures_at_worst() {
    let store = InMemoryStore::new();
    let euros = |micros| Cost::new(micros, Currency::EUR);
    let key = Budget::cost(store, euros(1_000_000), DAY).key("ada");
    let inner =
        agent(ScriptedModel::new().says("Yes").with_usage(Usage::new(100, 10)).fails("the line is dead"));
    let model = ScriptedModel::new()
        .calls("inner", r#"{"question": "Why?"}"#)
        .with_usage(Usage::new(100, 10))
        .says("Yes")
        .with_usage(Usage::new(100, 10));
    let options = ModelOptions::default().with_max_output_tokens(500);
    let prices = Prices::from_fn(Currency::EUR, |_, _| Some(ModelPrices::new(1.0, 10.0)));
    let outer = Agent::builder(model).options(options).prices(prices).tools(inner.as_tool("inner", "Thinks"));
    let answer = outer.build().unwrap().ask("Why?").budget(key.clone()).await.unwrap();
    assert_eq!((answer.cost(), key.left().await.unwrap()), (Some(euros(600)), 1_000_000 - 600));
    let error = inner.ask("Hello").budget(key.clone()).await.unwrap_err();
    let worst = 64 + 16 + 5 + 5_000;
    assert_eq!(
        (error.run().cost(), key.left().await.unwrap()),
        (Some(euros(worst)), 1_000_000 - 600 - worst)
    );
}

#[tokio::test]
async fn a_broken_store_lets_nothing_pass() {
    struct Broken;
    impl BudgetStore for Broken {
        fn reserve<'a>(
            &'a self,
            _: &'a tool_core::store::BudgetPeriod,
            _: u64,
            _: u64,
        ) -> tool_core::store::StoreFuture<'a, Option<tool_core::store::BudgetReservation>> {
            Box::pin(async { Err("the disk is gone".into()) })
        }
        fn settle<'a>(
            &'a self,
            _: &'a tool_core::store::BudgetReservation,
            _: u64,
            _: Timestamp,
        ) -> tool_core::store::StoreFuture<'a, ()> {
            Box::pin(async { Err("the disk is gone".into()) })
        }
        fn spent<'a>(
            &'a self,
            _: &'a tool_core::store::BudgetPeriod,
        ) -> tool_core::store::StoreFuture<'a, u64> {
            Box::pin(async { Err("the disk is gone".into()) })
        }
    }
    let model = ScriptedModel::new().says("Hello");
    let error = agent(model.clone())
        .ask("Hello")
        .budget(Budget::tokens(Broken, 1_000, DAY).key("ada"))
        .await
        .unwrap_err();
    assert_eq!((error.to_string(), model.remaining()), ("the store failed: the disk is gone".into(), 1));
}

/// All that is left is reserved for one request at a time, which others know until it is settled or expires.
#[tokio::test]
async fn a_store_reserves_all_that_is_left_for_one_request() {
    for (store, budget) in stores().await {
        let now = |minutes: u64| {
            Timestamp::from_millis(1_800_000_000_000 / 86_400_000 * 86_400_000 + minutes * 60_000)
        };
        let key = budget.key("ada");
        let period = key.period_at(now(0));
        let remainder = async |at_least, minutes| {
            store.reserve_remainder(&key.period_at(now(minutes)), at_least).await.unwrap()
        };
        let other = store.reserve(&period, 30, 30).await.unwrap().unwrap();
        assert_eq!(remainder(71, 0).await, BudgetRemainder::TooLittle);
        let BudgetRemainder::Reserved(first) = remainder(1, 0).await else { panic!() };
        assert_eq!((first.amount, store.spent(&period).await.unwrap()), (70, 100));
        assert_eq!(store.reserve(&period, 1, 1).await.unwrap(), None);
        // What others return meanwhile is not for a second request of this kind.
        store.settle(&other, 10, now(1)).await.unwrap();
        assert_eq!(remainder(1, 1).await, BudgetRemainder::InUse);
        assert_eq!(remainder(1_000, 1).await, BudgetRemainder::InUse);
        let bob = budget.key("bob").period_at(now(1));
        assert!(matches!(store.reserve_remainder(&bob, 100).await.unwrap(), BudgetRemainder::Reserved(_)));
        store.settle(&first, 40, now(2)).await.unwrap();
        let BudgetRemainder::Reserved(second) = remainder(50, 2).await else { panic!() };
        assert_eq!(second.amount, 50);
        // It expires, and counts as spent.
        assert_eq!(remainder(1, 61).await, BudgetRemainder::InUse);
        assert_eq!(remainder(1, 62).await, BudgetRemainder::TooLittle);
        // The excess is charged.
        let next = key.period_at(now(24 * 60));
        let BudgetRemainder::Reserved(third) = store.reserve_remainder(&next, 1).await.unwrap() else {
            panic!()
        };
        store.settle(&third, 250, now(24 * 60)).await.unwrap();
        assert_eq!(store.spent(&next).await.unwrap(), 250);
        assert_eq!(store.reserve_remainder(&next, 0).await.unwrap(), BudgetRemainder::TooLittle);
    }
}

/// Reads a token per so many bytes, and answers after the barrier, if there is one. Counts the requests in flight.
#[derive(Clone)]
struct Reader {
    bytes_per_token: u64,
    gate: Option<Arc<Semaphore>>,
    begun: Arc<Semaphore>,
    limits: Arc<Mutex<Vec<u32>>>,
}

impl Reader {
    fn new(bytes_per_token: u64) -> Self {
        Self { bytes_per_token, gate: None, begun: Arc::new(Semaphore::new(0)), limits: Arc::default() }
    }
}

impl ChatModel for Reader {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move {
            self.limits.lock().unwrap().push(request.options().max_output_tokens.unwrap());
            self.begun.add_permits(1);
            if let Some(gate) = &self.gate {
                gate.acquire().await.unwrap().forget();
            }
            let bytes: usize = request.messages().iter().map(|message| message.text().len()).sum();
            let usage = Usage::new(bytes as u64 / self.bytes_per_token, 100);
            Ok(ChatResponse::new(AssistantMessage::text("Yes.")).with_usage(usage))
        })
    }
}

fn reading(model: &Reader) -> AgentBuilder {
    let options = ModelOptions::default().with_max_output_tokens(1_000);
    Agent::builder(model.clone()).options(options)
}

/// A history of 110 kB does not lock a budget of 100,000 tokens, whatever it consists of, and its excess is charged. If less is left than
/// it may need, it is too long.
#[tokio::test]
async fn a_fresh_budget_admits_a_long_text_by_an_estimate() {
    let digits = "7".repeat(110_000);
    let chinese = "你".repeat(36_666);
    let pdf = Content::from("What is it?").with_part(File::from_bytes("application/pdf", b"%PDF"));
    // Bytes per token, and what is left before: 55,096 or 55,097 tokens are the estimate with the shortest answer.
    type Row = (&'static str, Content, u64, u64, Result<u64, u64>);
    let table: [Row; 7] = [
        ("English", "word ".repeat(22_000).into(), 4, 100_000, Ok(27_600)),
        ("Chinese", chinese.as_str().into(), 2, 100_000, Ok(55_099)),
        ("digits", digits.as_str().into(), 1, 100_000, Ok(110_100)),
        ("digits, just enough", digits.as_str().into(), 1, 55_096, Ok(110_100)),
        ("digits, too many", digits.as_str().into(), 1, 55_095, Err(55_095)),
        ("with 20,000 left", "word ".repeat(22_000).into(), 4, 20_000, Err(20_000)),
        ("PDF", pdf, 1, 100_000, Err(100_000)),
    ];
    for (name, question, bytes_per_token, limit, expected) in table {
        let model = Reader::new(bytes_per_token);
        let key = Budget::tokens(InMemoryStore::new(), limit, DAY).key("ada");
        let asked = reading(&model).build().unwrap().ask(question).budget(key.clone()).await;
        match expected {
            Ok(spent) => {
                asked.unwrap();
                assert_eq!(key.left().await.unwrap(), limit.saturating_sub(spent), "{name}");
                let longest = (limit - 55_080).min(1_000);
                assert!(u64::from(model.limits.lock().unwrap()[0]) <= longest, "{name}");
            }
            Err(left) => {
                let error = asked.unwrap_err();
                let RunErrorKind::Budget { left: stated, .. } = error.kind() else {
                    panic!("{name}: {error}")
                };
                assert_eq!((*stated, model.limits.lock().unwrap().len()), (left, 0), "{name}");
                let text =
                    "the request is too long for what is left of the budget of `ada`; its period ends in ";
                assert!(error.to_string().starts_with(text), "{error}");
            }
        }
    }
}

/// Nobody knows how many tokens are in reasoning, which can be encrypted, so each byte counts as one.
#[tokio::test]
async fn reasoning_is_estimated_by_its_bytes() {
    for (bytes, is_admitted) in [(60_000, true), (75_000, false)] {
        let mut reply = AssistantMessage::text("Yes.");
        reply.reasoning = Some("x".repeat(bytes));
        let history = [Message::user("word ".repeat(12_000)), Message::Assistant(reply)];
        let key = Budget::tokens(InMemoryStore::new(), 100_000, DAY).key("ada");
        let asked = reading(&Reader::new(4)).build().unwrap().ask("Why?").history(history).budget(key).await;
        match asked {
            Ok(answer) => assert!(is_admitted, "{answer}"),
            Err(error) => {
                let is_too_long = matches!(error.kind(), RunErrorKind::Budget { left: 100_000, .. });
                assert!(is_too_long && !is_admitted, "{error}");
            }
        }
    }
}

/// The run's own usage shows how many tokens a text has: the most are used, and a quarter more. A restored run knows them, too.
#[tokio::test]
async fn the_usage_of_a_run_decides_its_next_estimate() {
    #[tool("Reads a page")]
    fn read() -> String {
        "7".repeat(110_000)
    }
    // The tokens of a question of 4,000 bytes, the limit, and whether it admits the page.
    let table = [
        (1_000, 50_000, true),
        (1_000, 33_000, false),
        (4_000, 100_000, false),
        // More than a token per byte is no measure of text.
        (8_000, 100_000, true),
        (8_000, 50_000, false),
    ];
    for (tokens, limit, is_admitted) in table {
        let model = ScriptedModel::new().calls("read", "{}").with_usage(Usage::new(tokens, 10)).says("Yes.");
        let key = Budget::tokens(InMemoryStore::new(), limit, DAY).key("ada");
        let options = ModelOptions::default().with_max_output_tokens(1_000);
        let agent = Agent::builder(model).options(options).tools(tools![read]).budget(key.clone());
        let agent = agent.build().unwrap();
        let mut driver = agent.ask("x".repeat(4_000)).start();
        driver.advance().await.unwrap(); // asks
        driver.advance().await.unwrap(); // calls
        assert_eq!(key.left().await.unwrap(), limit - tokens - 10);
        let state = serde_json::to_string(&driver.into_run()).unwrap();
        let asked = agent.resume(serde_json::from_str::<Run>(&state).unwrap()).await;
        let left = limit - tokens - 10;
        match asked {
            Ok(_) => assert!(is_admitted, "{tokens} {limit}"),
            Err(error) => {
                let is_too_long =
                    matches!(error.kind(), RunErrorKind::Budget { left: stated, .. } if *stated == left);
                assert!(is_too_long && !is_admitted, "{tokens} {limit}: {error}");
            }
        }
    }
}

/// Also if a later request has used fewer.
#[tokio::test]
async fn the_most_tokens_that_a_run_has_used_decide() {
    #[tool("Reads digits")]
    fn read(digits: usize) -> String {
        "7".repeat(digits)
    }
    let model = ScriptedModel::new()
        .calls("read", r#"{"digits": 1}"#)
        .with_usage(Usage::new(2_000, 10))
        .calls("read", r#"{"digits": 110000}"#)
        .with_usage(Usage::new(1_000, 10))
        .says("Yes.");
    let key = Budget::tokens(InMemoryStore::new(), 60_000, DAY).key("ada");
    let options = ModelOptions::default().with_max_output_tokens(1_000);
    let agent = Agent::builder(model).options(options).tools(tools![read]).build().unwrap();
    let error = agent.ask("x".repeat(4_000)).budget(key).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Budget { left: 56_980, .. }), "{error}");
}

/// Its count is better than an estimate, also if that is lower.
#[tokio::test]
async fn what_the_provider_counts_is_not_estimated() {
    struct Counts(Reader, u64);

    impl ChatModel for Counts {
        fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
            self.0.chat(request)
        }

        fn count_tokens<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a, Option<u64>> {
            Box::pin(async { Ok(Some(self.1)) })
        }
    }

    for (counted, is_admitted) in [(90_000, true), (110_000, false)] {
        let key = Budget::tokens(InMemoryStore::new(), 100_000, DAY).key("ada");
        let options = ModelOptions::default().with_max_output_tokens(1_000);
        let agent = Agent::builder(Counts(Reader::new(4), counted)).options(options).build().unwrap();
        match agent.ask("7".repeat(110_000)).budget(key).await {
            Ok(answer) => assert!(is_admitted, "{answer}"),
            Err(error) => {
                let is_too_long = matches!(error.kind(), RunErrorKind::Budget { left: 100_000, .. });
                assert!(is_too_long && !is_admitted, "{error}");
            }
        }
    }
}

/// Otherwise, two requests with the same budgets could wait for each other.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_budget_reserves_nothing_of_others() {
    let store = InMemoryStore::new();
    let free = Budget::tokens(InMemoryStore::new(), 1_000_000, DAY).key("ada");
    let used = Budget::tokens(store.clone(), 100_000, DAY).key("ada");
    let BudgetRemainder::Reserved(other) =
        store.reserve_remainder(&used.period_at(Timestamp::now()), 1).await.unwrap()
    else {
        panic!()
    };
    let agent = reading(&Reader::new(4)).build().unwrap();
    let ask = agent.ask("word ".repeat(22_000)).budget(free.clone()).budget(used);
    let asked = tokio::spawn(ask.into_future());
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(free.left().await.unwrap(), 1_000_000);
    store.settle(&other, 0, Timestamp::now()).await.unwrap();
    asked.await.unwrap().unwrap();
    assert_eq!(free.left().await.unwrap(), 1_000_000 - 27_600);
}

/// One such request of a key is in flight at a time. Another one waits for it, and if its time is up before, it is refused with a kind of its
/// own and can be resumed.
#[tokio::test(start_paused = true)]
async fn one_estimated_request_of_a_key_is_in_flight_at_a_time() {
    let gate = Arc::new(Semaphore::new(0));
    let model = Reader { gate: Some(Arc::clone(&gate)), ..Reader::new(4) };
    let key = Budget::tokens(InMemoryStore::new(), 100_000, DAY).key("ada");
    let agent = reading(&model).build().unwrap();
    let ask = |question: String| agent.ask(question).budget(key.clone());
    let long = || "word ".repeat(22_000);
    let first = tokio::spawn(ask(long()).into_future());
    model.begun.acquire().await.unwrap().forget();
    let limited = ask(long()).limits(|l| l.max_time(Duration::from_secs(30))).await.unwrap_err();
    assert!(matches!(limited.kind(), RunErrorKind::BudgetInUse { key, .. } if key == "ada"), "{limited}");
    assert_eq!(
        limited.to_string(),
        "all that is left of the budget of `ada` is reserved for another request; `resume` the run later"
    );
    assert!(limited.is_resumable());
    // What no period has room for does not wait.
    let started = tokio::time::Instant::now();
    let pdf = Content::from("What is it?").with_part(File::from_bytes("application/pdf", b"%PDF"));
    let error = agent.ask(pdf).budget(key.clone()).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Budget { .. }), "{error}");
    assert_eq!(started.elapsed(), Duration::ZERO);
    // Without a limit, it waits for a minute.
    let unlimited = ask(long()).await.unwrap_err();
    assert!(matches!(unlimited.kind(), RunErrorKind::BudgetInUse { .. }), "{unlimited}");
    assert_eq!(started.elapsed().as_secs(), 60);
    // Short ones wait as well, because nothing is left for them.
    let others = [long(), "Hello".to_owned()].map(|question| {
        let ask = ask(question).limits(|l| l.max_time(Duration::from_secs(3_600)));
        tokio::spawn(ask.into_future())
    });
    tokio::time::sleep(Duration::from_secs(600)).await;
    let left = key.left().await.unwrap();
    assert_eq!((model.limits.lock().unwrap().len(), left), (1, 0));
    gate.add_permits(10);
    first.await.unwrap().unwrap();
    for other in others {
        other.await.unwrap().unwrap();
    }
    assert_eq!(key.left().await.unwrap(), 100_000 - 2 * 27_600 - 101);
    let error = agent.resume(limited.into_run()).budget(key.clone()).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Budget { left: 44_699, .. }), "{error}");
}

/// A request that was dropped or has failed has cost all that was left. Nobody waits for it.
#[tokio::test(start_paused = true)]
async fn nobody_waits_for_an_estimated_request_that_is_gone() {
    let long = || "word ".repeat(22_000);
    let key = || Budget::tokens(InMemoryStore::new(), 100_000, DAY).key("ada");
    let is_used_up = async |key: &KeyedBudget| {
        let error =
            reading(&Reader::new(4)).build().unwrap().ask("Hi").budget(key.clone()).await.unwrap_err();
        assert!(matches!(error.kind(), RunErrorKind::Budget { left: 0, .. }), "{error}");
    };
    let (dropped, failed) = (key(), key());
    let model = Reader { gate: Some(Arc::new(Semaphore::new(0))), ..Reader::new(4) };
    let agent = reading(&model).build().unwrap();
    let asked = tokio::spawn(agent.ask(long()).budget(dropped.clone()).into_future());
    model.begun.acquire().await.unwrap().forget();
    asked.abort();
    asked.await.unwrap_err();
    tokio::time::sleep(Duration::from_secs(1)).await;
    is_used_up(&dropped).await;
    agent_failing().ask(long()).budget(failed.clone()).await.unwrap_err();
    is_used_up(&failed).await;
}

/// Recovery does not wait for a budget whose rest a process has reserved that is gone: other runs are continued at once, and this one once
/// the budget is free.
#[tokio::test(start_paused = true)]
async fn recovery_does_not_wait_for_a_budget() {
    let store = InMemoryStore::new();
    let key = Budget::tokens(store.clone(), 100_000, DAY).key("ada");
    let BudgetRemainder::Reserved(lost) =
        store.reserve_remainder(&key.period_at(Timestamp::now()), 1).await.unwrap()
    else {
        panic!()
    };
    let agent = reading(&Reader::new(4)).run_store(store.clone()).budget(key).build().unwrap();
    let error = agent.ask("word ".repeat(22_000)).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::BudgetInUse { .. }), "{error}");
    let started = tokio::time::Instant::now();
    assert_eq!(agent.recover().once().await.unwrap(), 0);
    assert_eq!(started.elapsed(), Duration::ZERO);
    store.settle(&lost, 0, Timestamp::now()).await.unwrap();
    assert_eq!(agent.recover().once().await.unwrap(), 1);
}

fn agent_failing() -> Agent {
    let options = ModelOptions::default().with_max_output_tokens(1_000);
    Agent::builder(ScriptedModel::new().fails("the line is dead")).options(options).build().unwrap()
}

/// The operation of a store that waits at its gate.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Gated {
    Reserve,
    ReserveRemainder,
    Settle,
}

/// A store in memory that has reserved something before it waits, and has not settled anything.
#[derive(Clone)]
struct GatedStore {
    inner: InMemoryStore,
    gated: Gated,
    begun: Arc<Semaphore>,
    gate: Arc<Semaphore>,
}

impl GatedStore {
    fn new(gated: Gated) -> Self {
        let [begun, gate] = [(); 2].map(|()| Arc::new(Semaphore::new(0)));
        Self { inner: InMemoryStore::new(), gated, begun, gate }
    }

    async fn pass(&self, operation: Gated) {
        if self.gated == operation {
            self.begun.add_permits(1);
            self.gate.acquire().await.unwrap().forget();
        }
    }
}

impl BudgetStore for GatedStore {
    fn reserve<'a>(
        &'a self,
        period: &'a BudgetPeriod,
        at_least: u64,
        at_most: u64,
    ) -> StoreFuture<'a, Option<BudgetReservation>> {
        Box::pin(async move {
            let reserved = self.inner.reserve(period, at_least, at_most).await;
            self.pass(Gated::Reserve).await;
            reserved
        })
    }

    fn reserve_remainder<'a>(
        &'a self,
        period: &'a BudgetPeriod,
        at_least: u64,
    ) -> StoreFuture<'a, BudgetRemainder> {
        Box::pin(async move {
            let reserved = self.inner.reserve_remainder(period, at_least).await;
            self.pass(Gated::ReserveRemainder).await;
            reserved
        })
    }

    fn settle<'a>(
        &'a self,
        reservation: &'a BudgetReservation,
        spent: u64,
        now: Timestamp,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.pass(Gated::Settle).await;
            self.inner.settle(reservation, spent, now).await
        })
    }

    fn spent<'a>(&'a self, period: &'a BudgetPeriod) -> StoreFuture<'a, u64> {
        self.inner.spent(period)
    }
}

/// Whatever a store does when a request is dropped: nothing stays reserved of one that was not sent, and one that was answered has cost its
/// usage. So it is with budgets before the one whose store is asked, and with those after it.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_while_a_store_is_asked_leaves_nothing_reserved() {
    let (short, long) = ("word ".repeat(2_000), "word ".repeat(22_000));
    let table = [
        (Gated::Reserve, &short, 0),
        (Gated::ReserveRemainder, &long, 0),
        (Gated::Settle, &short, 2_600),
        (Gated::Settle, &long, 27_600),
    ];
    for (gated, question, spent) in table {
        let store = GatedStore::new(gated);
        let memory = || Budget::tokens(InMemoryStore::new(), 100_000, DAY).key("ada");
        let keys = [memory(), Budget::tokens(store.clone(), 100_000, DAY).key("ada"), memory()];
        let model = Reader::new(4);
        let agent = reading(&model).build().unwrap();
        let ask = agent.ask(question.clone());
        let ask = keys.iter().fold(ask, |ask, key| ask.budget(key.clone()));
        let asked = tokio::spawn(ask.into_future());
        store.begun.acquire().await.unwrap().forget();
        asked.abort();
        asked.await.unwrap_err();
        store.gate.add_permits(100);
        // The time passes once nothing else is to be done.
        tokio::time::sleep(Duration::from_secs(1)).await;
        for key in keys {
            assert_eq!(key.left().await.unwrap(), 100_000 - spent, "{gated:?}, {} bytes", question.len());
        }
        assert_eq!(model.limits.lock().unwrap().len(), usize::from(spent > 0), "{gated:?}");
    }
}

/// Two processes with one file, whose requests an estimate admits, are one after the other.
#[tokio::test]
async fn processes_send_estimated_requests_one_after_the_other() {
    let file = std::env::temp_dir().join(format!("estimates-{}.db", std::process::id()));
    let gate = Arc::new(Semaphore::new(0));
    let begun = Arc::new(Semaphore::new(0));
    let mut asked = Vec::new();
    for _ in 0..2 {
        let key = Budget::tokens(SqliteStore::open(&file).await.unwrap(), 100_000, DAY).key("ada");
        let model = Reader { gate: Some(Arc::clone(&gate)), begun: Arc::clone(&begun), ..Reader::new(1) };
        let agent = reading(&model).build().unwrap();
        asked.push(tokio::spawn(agent.ask("7".repeat(110_000)).budget(key).into_future()));
    }
    begun.acquire().await.unwrap().forget();
    gate.add_permits(2);
    let mut outcomes = Vec::new();
    for asked in asked {
        outcomes.push(asked.await.unwrap());
    }
    // The first one has exceeded the budget, and the second one was not sent.
    let errors: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert!(
        matches!(errors[..], [error] if matches!(error.kind(), RunErrorKind::Budget { left: 0, .. })),
        "{errors:?}"
    );
    assert_eq!((begun.available_permits(), gate.available_permits()), (0, 1));
    let store = SqliteStore::open(&file).await.unwrap();
    let period = Budget::tokens(store.clone(), 100_000, DAY).key("ada").period_at(Timestamp::now());
    assert_eq!(store.spent(&period).await.unwrap(), 110_100);
    drop(store);
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", file.display()));
    }
}

/// The environment variable with the file of the store.
const FILE: &str = "BUDGETS_FILE";

/// Reserves until nothing is left, and prints the sum.
#[tokio::test]
#[ignore = "needs a file: the other test starts it in a process"]
async fn one_process() {
    let store = SqliteStore::open(std::env::var(FILE).unwrap()).await.unwrap();
    let key = Budget::tokens(store.clone(), 1_000, DAY).key("ada");
    let mut sum = 0;
    while let Some(reserved) = store.reserve(&key.period_at(Timestamp::now()), 1, 7).await.unwrap() {
        sum += reserved.amount;
    }
    println!("sum={sum}.");
}

#[tokio::test]
async fn processes_do_not_spend_the_same_rest() {
    let file = std::env::temp_dir().join(format!("budgets-{}.db", std::process::id()));
    let start = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "--ignored", "budgets::one_process", "--nocapture"]).env(FILE, &file);
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let sums = [start(), start()].map(|process| {
        let output = String::from_utf8(process.wait_with_output().unwrap().stdout).unwrap();
        let sum = output.split("sum=").nth(1).and_then(|rest| rest.split('.').next()).expect("a sum");
        sum.parse::<u64>().unwrap()
    });
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", file.display()));
    }
    assert_eq!(sums.iter().sum::<u64>(), 1_000);
}
