//! What compactions are decided by, and what becomes of them where a run goes on elsewhere.

use std::sync::{Arc, Mutex};

use tests::support::ways::alike;
use tool_core::agent::{AgentBuilder, Compaction, ToolSearch};
use tool_core::model::{ChatRequest, Currency, Message, ModelPrices, Prices, Usage};
use tool_core::provider::ModelFuture;
use tool_core::run::Run;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ChatModel, tool, tools};

use crate::compacting::{Long, SUMMARY, advanced, agent, assert_whole, breaks, chars, contract, read};

/// A model with a name, that reports how long its requests are: as many times what they are estimated to be.
#[derive(Clone)]
struct Reporting(Long, f64);

impl ChatModel for Reporting {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move {
            let response = self.0.chat(request).await?;
            let tokens = chars(request.messages()) as f64 / 4.0 * self.1;
            Ok(response.with_usage(Usage::new(tokens as u64, 10)))
        })
    }

    fn model_name(&self) -> Option<&str> {
        Some("m")
    }
}

/// Returns the first request that does not begin with the one before.
async fn first_break(
    tool: &'static str,
    factor: f64,
    build: impl FnOnce(AgentBuilder) -> AgentBuilder,
) -> Option<usize> {
    let long = Long::new(30, tool);
    let builder = Agent::builder(Reporting(long.clone(), factor)).tools(tools![read, contract]);
    let agent = build(builder.limits(|l| l.max_turns(400))).build().unwrap();
    agent.ask("Read all").await.unwrap();
    let requests = long.requests();
    requests.windows(2).position(|pair| !pair[1].starts_with(&pair[0])).map(|before| before + 1)
}

/// What reading again and a summary cost decides when a compaction pays.
#[tokio::test]
async fn prices_decide_when_it_pays() {
    // The prices of tokens from the cache, to it, and of the output, in those of the input, and the first requests after a compaction: of
    // outputs that can be hidden, and of those that need a summary.
    let table = [
        (Some([0.1, 1.25, 5.0]), [Some(20), Some(29)]),
        (Some([0.5, 1.25, 5.0]), [Some(10), Some(17)]),
        (Some([0.1, 2.0, 5.0]), [Some(25), None]),
        (Some([0.1, 1.25, 50.0]), [Some(20), None]),
        (Some([0.0, 1.25, 5.0]), [None, None]),
        // The usual ones.
        (None, [Some(20), Some(29)]),
    ];
    for (rates, expected) in table {
        let prices = rates.map(|[cached, written, output]| {
            Prices::from_fn(Currency::USD, move |_, _| {
                let prices = ModelPrices::new(3.0, 3.0 * output).with_cached_input(3.0 * cached);
                Some(prices.with_cache_writes(3.0 * written, 3.0 * written))
            })
        });
        let build = |builder: AgentBuilder| {
            let builder = builder.compaction(Compaction::when_it_pays());
            prices.clone().into_iter().fold(builder, AgentBuilder::prices)
        };
        let found = [first_break("read", 1.0, build).await, first_break("contract", 1.0, build).await];
        assert_eq!(found, expected, "{rates:?}");
    }
}

/// The length of a request is what the provider reported of the last one, and estimated only if it reports nothing.
#[tokio::test]
async fn what_the_provider_reports_counts() {
    for (factor, expected) in [(0.0, 7), (1.0, 7), (2.0, 4), (0.5, 13)] {
        let compaction = Compaction::when_it_pays().at_tokens(6_000).keep_recent_tokens(1_500);
        let found = first_break("read", factor, |builder| builder.compaction(compaction)).await;
        assert_eq!(found, Some(expected), "{factor}");
    }
}

/// A limit on tokens compacts a run at the latest there, whether that pays or not; a mark, only there.
#[tokio::test]
async fn a_run_is_compacted_at_the_latest_at_a_limit() {
    let pays = Compaction::when_it_pays().keep_recent_tokens(1_500);
    let table = [
        (pays.clone(), Some(10)),
        (pays.clone().at_most_tokens(4_000), Some(5)),
        (pays.clone().at_most_tokens(100_000), Some(10)),
        (pays.clone().at_tokens(20_000), Some(23)),
        (pays.clone().at_tokens(20_000).at_most_tokens(15_000), Some(17)),
        (pays.at_tokens(100_000), None),
    ];
    for (compaction, expected) in table {
        let text = format!("{compaction:?}");
        let found = first_break("read", 1.0, |builder| builder.compaction(compaction)).await;
        assert_eq!(found, expected, "{text}");
    }
}

/// Returns what a request has of the results: `true` for each that is whole.
fn whole(request: &[Message]) -> Vec<bool> {
    let results = request.iter().filter(|message| matches!(message, Message::Tool(_)));
    results.map(|result| !result.text().contains("was removed")).collect()
}

/// A fork has the compactions that were made before it, which hide nothing of what it adds.
#[tokio::test]
async fn a_fork_hides_only_what_precedes_it() {
    for tool in ["read", "contract"] {
        let model = Long::new(100, tool);
        let agent = agent(&model, Compaction::when_it_pays().keep_recent_tokens(1_500)).build().unwrap();
        let run = advanced(&agent, agent.ask("Read all").start().into_run(), 6).await;
        let run = agent.compact(run).await.unwrap();
        assert_eq!(run.compactions().len(), 1);
        // Instructions, the question, and two messages per turn.
        for turns in 1..=6 {
            let position = 2 + 2 * turns;
            let forked = agent.fork(&run, position).unwrap().start();
            let before = model.requests().len();
            let forked = advanced(&agent, forked.into_run(), 2).await;
            let requests = model.requests().split_off(before);
            let keeps = turns == 6;
            assert_eq!(forked.compactions().len(), usize::from(keeps), "{tool} {turns}");
            for (added, request) in requests.iter().enumerate() {
                let whole = whole(request);
                let visible = if keeps { added } else { turns + added };
                assert!(
                    whole.iter().rev().take(visible).eq(vec![&true; visible]),
                    "{tool} {turns}: {whole:?}"
                );
            }
            requests.iter().for_each(|request| assert_whole(request));
        }
    }
}

/// Whatever instructions the agents of a handoff have, the same messages stay hidden.
#[tokio::test]
async fn a_handoff_hides_the_same_messages() {
    for tool in ["read", "contract"] {
        for (first, second) in [(None, None), (None, Some("B")), (Some("A"), None), (Some("A"), Some("B"))] {
            let key = if tool == "read" { "page" } else { "id" };
            let mut model = ScriptedModel::new();
            for number in 1..=5 {
                model = model.calls(tool, format!(r#"{{"{key}": {number}}}"#));
            }
            let model = if tool == "contract" { model.says(SUMMARY) } else { model };
            let model = model.calls("second", "{}");
            let compaction = || Compaction::when_it_pays().keep_recent_tokens(1_500);
            let instructed = |builder: AgentBuilder, text: Option<&str>| match text {
                Some(text) => builder.instructions(text),
                None => builder,
            };
            let other = ScriptedModel::new().says("Done.");
            let agent_of = |model: &ScriptedModel, text| {
                let builder = Agent::builder(model.clone()).tools(tools![read, contract]);
                instructed(builder, text).compaction(compaction())
            };
            let next = agent_of(&other, second).build().unwrap();
            let agent = agent_of(&model, first).handoff_to("second", "Takes over", &next).build().unwrap();
            let run = advanced(&agent, agent.ask("Read all").start().into_run(), 5).await;
            let run: Run = agent.compact(run).await.unwrap();
            assert_eq!(run.compactions().len(), 1);
            assert_eq!(agent.resume(run).await.unwrap().text(), "Done.");
            let before = model.requests().pop().unwrap();
            let after = other.requests().pop().unwrap();
            let visible = |request: &[Message]| {
                let shown = request.iter().filter(|message| !matches!(message, Message::System(_)));
                shown.cloned().collect::<Vec<_>>()
            };
            assert_eq!(usize::from(second.is_some()), after.len() - visible(&after).len());
            let (before, after) = (visible(&before), visible(&after));
            assert!(before.len() < 12 || whole(&before).contains(&false), "{before:?}");
            assert_eq!(after[..before.len()], before, "{tool} {first:?} {second:?}");
            assert_whole(&after);
        }
    }
}

/// A run is compacted in the same way however it is driven.
#[tokio::test]
async fn a_streamed_run_is_compacted_in_the_same_way() {
    for tool in ["read", "contract"] {
        let models: Arc<Mutex<Vec<Long>>> = Arc::default();
        let compaction = Compaction::when_it_pays().at_tokens(6_000).keep_recent_tokens(1_500);
        let build = || {
            let model = Long::new(12, tool);
            models.lock().unwrap().push(model.clone());
            agent(&model, compaction.clone())
        };
        assert_eq!(alike(build).await.unwrap().text(), "Done.");
        let requests: Vec<_> = models.lock().unwrap().iter().map(Long::requests).collect();
        assert_eq!(requests.len(), 3);
        assert!(breaks(&requests[0]) > 0);
        assert!(requests[0] == requests[1] && requests[0] == requests[2], "{tool}");
    }
}

/// A tool that was found before a summary is named, and can still be called.
#[tokio::test]
async fn found_tools_are_called_after_a_summary() {
    #[tool("Forecasts the weather of a city")]
    fn forecast(city: String) -> String {
        format!("rain in {city}")
    }
    let found = |id: u32| format!(r#"{{"name": "contract", "arguments": {{"id": {id}}}}}"#);
    let model = ScriptedModel::new()
        .calls("search_tools", r#"{"query": "forecast, contract"}"#)
        .calls("call_tool", found(1))
        .calls("call_tool", found(2))
        .says(SUMMARY)
        .expects(|request| {
            let text: String = request.messages().iter().map(|message| message.text().into_owned()).collect();
            let names = ["These tools were found", "`forecast`", "`contract`"];
            text.contains(SUMMARY)
                && !text.contains("the best match first")
                && names.iter().all(|name| text.contains(name))
        })
        .calls("call_tool", r#"{"name": "forecast", "arguments": {"city": "Rome"}}"#)
        .says("Rain.");
    let compaction = Compaction::when_it_pays().at_tokens(2_200).keep_recent_tokens(100);
    let agent = Agent::builder(model).tools(tools![forecast, contract]).compaction(compaction);
    let agent = agent.tool_search(ToolSearch::bm25().min_tools(1).call_through()).build().unwrap();
    let answer = agent.ask("What is the weather?").await.unwrap();
    assert_eq!(answer.tool_executions().last().unwrap().output().unwrap().to_string(), "rain in Rome");
}
