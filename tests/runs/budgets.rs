//! Budgets across runs and processes.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tool_core::memory::{Budget, BudgetStore, InMemoryStore};
use tool_core::model::{Cost, Currency, ModelOptions, ModelPrices, Prices, Usage};
use tool_core::testing::ScriptedModel;
use tool_core::tool::Timestamp;
use tool_core::{Agent, RunErrorKind, SqliteStore};

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
    for store in [Arc::new(InMemoryStore::new()) as Arc<dyn BudgetStore>, Arc::new(sqlite)] {
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
    let outer = Agent::builder(model).options(options).prices(prices).tool(inner.as_tool("inner", "Thinks"));
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
            _: &'a tool_core::memory::BudgetPeriod,
            _: u64,
            _: u64,
        ) -> tool_core::memory::StoreFuture<'a, Option<tool_core::memory::BudgetReservation>> {
            Box::pin(async { Err("the disk is gone".into()) })
        }
        fn settle<'a>(
            &'a self,
            _: &'a tool_core::memory::BudgetReservation,
            _: u64,
            _: Timestamp,
        ) -> tool_core::memory::StoreFuture<'a, ()> {
            Box::pin(async { Err("the disk is gone".into()) })
        }
        fn spent<'a>(
            &'a self,
            _: &'a tool_core::memory::BudgetPeriod,
        ) -> tool_core::memory::StoreFuture<'a, u64> {
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
