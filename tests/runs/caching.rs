//! What requests read from the provider's prompt cache, and what they could have.

use std::time::{SystemTime, UNIX_EPOCH};

use tool_core::agent::Compaction;
use tool_core::layer::rewrite;
use tool_core::signatures::{CacheUse, FindingKind};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, Answer, ChatModel, tool, tools};

use crate::compacting::billing::BillingModel;

#[tool("Reads a page", pure)]
fn read(page: u32) -> String {
    format!("page {page}: {}", "lorem ipsum ".repeat(330))
}

fn agent(model: impl ChatModel + 'static) -> tool_core::agent::AgentBuilder {
    Agent::builder(model).tools(tools![read]).limits(|l| l.max_turns(400)).track_cache()
}

/// Returns the turn, the cached and the expected tokens of each request.
fn uses(cache: &[CacheUse]) -> Vec<(u32, u64, u64)> {
    cache.iter().map(|one| (one.turn, one.cached_tokens, one.expected_tokens)).collect()
}

async fn ask(agent: tool_core::agent::AgentBuilder) -> Answer {
    agent.build().unwrap().ask("Read all pages").await.unwrap()
}

#[tokio::test]
async fn each_request_reads_the_one_before_from_the_cache() {
    let answer = ask(agent(BillingModel::new(5, "read"))).await;
    let cache = answer.cache();
    assert_eq!(cache.iter().map(|one| one.turn).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    assert_eq!((cache[0].cached_tokens, cache[0].expected_tokens), (0, 0));
    assert!(cache[1..].iter().all(|one| one.expected_tokens > 0 && one.lost_tokens() == 0), "{cache:?}");
    assert!(cache[5].expected_tokens > 3_000, "{cache:?}");
}

#[tokio::test]
async fn nothing_is_recorded_unless_it_is_asked_for() {
    let agent = || Agent::builder(BillingModel::new(5, "read")).tools(tools![read]);
    assert_eq!(ask(agent()).await.cache(), []);
    // A model that reports nothing of its cache.
    let model = ScriptedModel::new().calls("read", r#"{"page": 1}"#).says("Done.");
    assert_eq!(ask(Agent::builder(model).tools(tools![read]).track_cache()).await.cache(), []);
    assert!(!serde_json::to_string(&ask(agent()).await).unwrap().contains("cache\""));
}

/// A layer that changes the instructions with each request loses the cache.
#[tokio::test]
async fn lost_cache_hits_are_seen() {
    let turn = std::sync::atomic::AtomicU32::new(0);
    let clock = rewrite::request(move |request| {
        let turn = turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        request.with_instructions(format!("It is turn {turn}."))
    });
    let answer = ask(agent(BillingModel::new(3, "read")).layer(clock)).await;
    let lost: Vec<_> = answer.cache().iter().map(|one| one.lost_tokens() > 0).collect();
    assert_eq!(lost, [false, true, true, true], "{:?}", answer.cache());
}

/// After a compaction, and without earlier turns, nothing is expected.
#[tokio::test]
async fn what_is_hidden_is_not_expected() {
    let compaction = Compaction::when_it_pays().at_tokens(6_000).keep_recent_tokens(1_500);
    let answer = ask(agent(BillingModel::new(12, "read")).compaction(compaction)).await;
    let anew = answer.cache()[1..].iter().filter(|one| one.expected_tokens == 0).count();
    assert!(anew > 0, "{:?}", answer.cache());
    assert!(answer.cache().iter().all(|one| one.lost_tokens() == 0), "{:?}", answer.cache());
    let answer = ask(agent(BillingModel::new(5, "read")).send_earlier_turns(false)).await;
    assert!(answer.cache()[2..].iter().all(|one| one.expected_tokens == 0), "{:?}", answer.cache());
}

/// A compaction that fails hides nothing, so everything is expected.
#[tokio::test]
async fn a_failed_compaction_loses_no_record() {
    #[tool("Reads a page that stays", keep_output)]
    fn keep(page: u32) -> String {
        read(page)
    }
    let compaction = Compaction::when_it_pays().at_tokens(3_000).keep_recent_tokens(1_500);
    let compaction =
        compaction.summarize_with(ScriptedModel::new().fails("down").fails("down").fails("down"));
    let answer = ask(agent(BillingModel::new(12, "keep")).tools(tools![keep]).compaction(compaction)).await;
    assert_eq!(answer.usage_by_layer().iter().filter(|(name, _)| *name == "compaction").count(), 1);
    assert!(answer.cache()[1..].iter().all(|one| one.expected_tokens > 0), "{:?}", answer.cache());
}

#[tokio::test]
async fn another_agent_begins_anew() {
    let billing = agent(BillingModel::new(2, "read")).instructions("You do billing.").build().unwrap();
    let first = Agent::builder(BillingModel::new(1, "billing"));
    let first = first.handoff_to("billing", "Knows bills", &billing).track_cache().build().unwrap();
    let answer = first.ask("Why so much?").await.unwrap();
    assert_eq!(answer.handoffs().len(), 1);
    let expected: Vec<_> = answer.cache().iter().map(|one| one.expected_tokens > 0).collect();
    assert_eq!(expected, [false, false, true, true], "{:?}", answer.cache());
}

/// It is part of the state, and runs inside have their own.
#[tokio::test]
async fn the_use_of_the_cache_is_stored_with_the_run() {
    let whole = ask(agent(BillingModel::new(4, "read"))).await;
    let stepped = agent(BillingModel::new(4, "read")).build().unwrap();
    let mut run = stepped.ask("Read all pages").start().into_run();
    let answer = loop {
        let mut driver = stepped.resume(run).start();
        match driver.advance().await.unwrap() {
            true => run = serde_json::from_str(&serde_json::to_string(&driver.into_run()).unwrap()).unwrap(),
            false => break driver.finish().await.unwrap(),
        }
    };
    assert_eq!(uses(answer.cache()), uses(whole.cache()));
    let outer = ScriptedModel::new().calls("reader", r#"{"question": "Read"}"#).says("Fine.");
    let inner = agent(BillingModel::new(4, "read")).build().unwrap();
    let answer = ask(Agent::builder(outer).tools(inner.as_tool("reader", "Reads"))).await;
    assert_eq!(answer.cache(), []);
    assert_eq!(answer.inner_runs()[0].run().cache().len(), 5);
}

#[test]
fn instructions_with_the_time_are_found() {
    let report = |text: &str| {
        let agent = Agent::builder(ScriptedModel::new()).instructions(text).tools(tools![read]).build();
        let found: Vec<_> = agent.unwrap().check().findings().iter().map(|one| one.kind()).collect();
        found
    };
    let parameter = FindingKind::UndescribedParameter;
    assert_eq!(report("You help until 17:30."), [parameter]);
    // An example is no time that changes.
    assert_eq!(report("Write times as 10:00:00, and dates as 2019-04-01."), [parameter]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() % 86_400;
    // A full minute is taken for an example.
    let now = if now.is_multiple_of(60) { now + 86_399 } else { now } % 86_400;
    let text = format!("It is {:02}:{:02}:{:02}.", now / 3_600, now / 60 % 60, now % 60);
    assert_eq!(report(&text), [FindingKind::TimeInInstructions, parameter]);
}
