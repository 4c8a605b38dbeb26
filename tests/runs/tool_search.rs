//! Tools found by search: what the model is offered, and that everything else is as without search.

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use serde_json::{Value, json};
use tests::support::ways::{alike, in_all_ways, restored};
use tool_core::agent::{AgentBuilder, BuildErrorKind, ToolSearch};
use tool_core::layer::guard;
use tool_core::model::{ChatRequest, ChatStream, ToolChoice};
use tool_core::provider::ModelFuture;
use tool_core::run::{Decision, Run, Step};
use tool_core::testing::ScriptedModel;
use tool_core::toolset::{ToolProvider, ToolProviderFuture, ToolProviderRequest, provide};
use tool_core::{
    Agent, ChatModel, Event, FunctionTool, Message, RunErrorKind, Tool, ToolCall, ToolSet, tool, tools,
};

#[tool("Sums two numbers")]
fn sum(a: i64, b: i64) -> i64 {
    a + b
}

#[tool("Returns the weather forecast of a city")]
fn forecast(city: String, days: Option<u8>) -> String {
    format!("rain in {city} for {} days", days.unwrap_or(1))
}

#[tool("Pays an invoice", needs_approval, undo = "refund")]
fn pay(cents: u64) -> String {
    format!("paid {cents}")
}

#[tool("Gives the money of an invoice back")]
fn refund(cents: u64) -> String {
    format!("refunded {cents}")
}

#[tool("Archives a project", deferred)]
fn archive(project: String) -> String {
    format!("archived {project}")
}

/// Tools that no query of these tests is about.
fn others(count: usize) -> ToolSet {
    let tool = |number| {
        let tool = FunctionTool::new(format!("unrelated_{number}"), || "nothing");
        Arc::new(tool.description("Polishes a mirror")) as Arc<dyn Tool>
    };
    ToolSet::new((0..count).map(tool)).unwrap()
}

fn many() -> ToolSet {
    tools![sum, forecast, pay, refund].union(others(40)).unwrap()
}

fn names(request: &ChatRequest<'_>) -> Vec<String> {
    request.tools().iter().map(|tool| tool.name().to_owned()).collect()
}

fn offers(expected: &[&'static str]) -> impl Fn(&ChatRequest<'_>) -> bool + Send + use<> {
    let expected = expected.to_vec();
    move |request| {
        let names = names(request);
        if names != expected {
            println!("offered: {names:?}");
        }
        names == expected
    }
}

fn agent(model: ScriptedModel, search: ToolSearch) -> AgentBuilder {
    Agent::builder(model).tools(many()).tool_search(search)
}

fn search() -> ToolSearch {
    ToolSearch::bm25().min_tools(11).always_offer(tools![sum])
}

fn query(text: &str) -> String {
    json!({ "query": text }).to_string()
}

fn through(name: &str, arguments: &Value) -> String {
    json!({ "name": name, "arguments": arguments }).to_string()
}

#[tokio::test]
async fn found_tools_are_appended_and_stay() {
    let build = || {
        let model = ScriptedModel::new()
            .expects(offers(&["sum", "search_tools"]))
            .calls("search_tools", query("weather forecast"))
            .expects(offers(&["sum", "search_tools", "forecast"]))
            .calls_all([
                ("forecast", r#"{"city": "Rome", "days": "3"}"#),
                ("search_tools", &query("invoice")),
            ])
            .expects(offers(&["sum", "search_tools", "forecast", "pay", "refund"]))
            .says("It rains.");
        agent(model, search())
    };
    let answer = alike(build).await.unwrap();
    let executions = answer.tool_executions();
    assert_eq!(executions[1].call().name, "forecast");
    assert_eq!(executions[1].output().unwrap().to_string(), "rain in Rome for 3 days");
    assert_eq!(executions[1].repairs().len(), 1);
    let found = answer.new_messages()[2].text().into_owned();
    let expected =
        "Found 1 tool. It can be called from now on:\n- forecast: Returns the weather forecast of a city";
    assert_eq!(found, expected);
}

#[tokio::test]
async fn the_state_of_a_run_has_the_found_tools() {
    let model = ScriptedModel::new().calls("search_tools", query("weather forecast")).fails("offline");
    let first = agent(model, search()).build().unwrap();
    let run = restored(first.ask("Rain?").await.unwrap_err().into_run());
    assert_eq!(run.found_tools(), ["forecast"]);
    let state = serde_json::to_value(&run).unwrap();
    assert_eq!(state["history"]["found_tools"], json!(["forecast"]));
    // Another process, whose agent no longer has one of the tools.
    let mut state = state.clone();
    state["history"]["found_tools"] = json!(["vanished", "forecast"]);
    let run: Run = serde_json::from_value(state).unwrap();
    let model = ScriptedModel::new().expects(offers(&["sum", "search_tools", "forecast"])).says("Yes.");
    assert_eq!(agent(model, search()).build().unwrap().resume(run).await.unwrap().text(), "Yes.");
}

#[tokio::test]
async fn calls_through_are_calls_of_the_tools_themselves() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let build = || {
        let offered = || offers(&["sum", "search_tools", "call_tool"]);
        let model = ScriptedModel::new()
            .expects(offered())
            .calls("search_tools", query("weather forecast"))
            .expects(offered())
            .expects(|request| {
                let found = request.messages().last().unwrap().text().into_owned();
                found.contains(r#"{"name":"forecast","#) && found.contains(r#""city":{"#)
            })
            .calls_all([
                ("call_tool", through("forecast", &json!({ "city": "Rome", "days": "3" }))),
                ("call_tool", r#"{"name": "forecast", "arguments": "{\"city\": \"Bonn\"}"}"#.to_owned()),
                ("call_tool", through("forecast", &json!({ "town": "Rome" }))),
                ("call_tool", through("forcast", &json!({}))),
                ("call_tool", r#"{"arguments": {}}"#.to_owned()),
                ("sum", r#"{"a": 1, "b": 2}"#.to_owned()),
            ])
            .expects(offered())
            .expects(|request| {
                let Message::Assistant(reply) = &request.messages()[3] else { return false };
                let calls: Vec<_> =
                    reply.tool_calls.iter().map(|call| (&*call.name, &*call.arguments)).collect();
                calls[0] == ("call_tool", r#"{"name":"forecast","arguments":{"city":"Rome","days":"3"}}"#)
                    && calls[1].1 == r#"{"name":"forecast","arguments":{"city": "Bonn"}}"#
                    && calls[5] == ("sum", r#"{"a": 1, "b": 2}"#)
                    && matches!(&request.messages()[4], Message::Tool(result) if result.name == "call_tool")
            })
            .says("It rains.");
        let seen = Arc::clone(&seen);
        agent(model, search().call_through()).on_event(move |event| {
            let name = match event {
                Event::CallReady { call, .. } | Event::CallStarted(call) => call.name.clone(),
                Event::CallFinished(execution) => execution.call().name.clone(),
                _ => return,
            };
            seen.lock().unwrap().push(name);
        })
    };
    let answer = alike(build).await.unwrap();
    let outcomes: Vec<_> = answer
        .tool_executions()
        .iter()
        .skip(1)
        .map(|one| match one.outcome() {
            Ok(output) => format!("{} {output}", one.call().name),
            Err(error) => format!("{} {:?}", one.call().name, error.kind()),
        })
        .collect();
    let expected = [
        "forecast rain in Rome for 3 days",
        "forecast rain in Bonn for 1 days",
        "forecast InvalidArguments",
        "forcast UnknownTool",
        "call_tool InvalidArguments",
        "sum 3",
    ];
    assert_eq!(outcomes, expected);
    assert_eq!(answer.tool_executions()[1].repairs().len(), 1);
    // The conversation that is stored has the tools themselves.
    let Message::Assistant(reply) = &answer.new_messages()[3] else { panic!("a reply") };
    assert_eq!(reply.tool_calls[0].name, "forecast");
    assert_eq!(seen.lock().unwrap().iter().filter(|name| *name == "forecast").count(), 3 * 3 * 3);
}

#[tokio::test]
async fn approvals_are_those_of_the_tools_themselves() {
    for search in [search(), search().call_through()] {
        let build = || {
            let model = ScriptedModel::new().calls("search_tools", query("pay an invoice"));
            let model = match search.clone() {
                // Called without its name being offered, which is executed too.
                _ if format!("{search:?}").contains("calls_through: true") => {
                    model.calls("call_tool", through("pay", &json!({ "cents": 700 })))
                }
                _ => model.calls("pay", r#"{"cents": 700}"#),
            };
            agent(model.says("Paid."), search.clone())
        };
        let decide = |call: &ToolCall| {
            assert_eq!((&*call.name, &*call.arguments.replace(' ', "")), ("pay", r#"{"cents":700}"#));
            Decision::approve_with(r#"{"cents": 7}"#)
        };
        let answer = in_all_ways(build, decide).await.unwrap();
        assert_eq!(answer.tool_executions()[1].output().unwrap().to_string(), "paid 7");
    }
}

#[tokio::test]
async fn calls_through_are_undone() {
    let build = || {
        let model = ScriptedModel::new()
            .calls("call_tool", through("pay", &json!({ "cents": 700 })))
            .calls("call_tool", through("pay", &json!({ "cents": 1 })));
        agent(model, search().call_through()).limits(|l| l.max_turns(2))
    };
    let error = in_all_ways(build, |_| Decision::approve()).await.unwrap_err();
    let undone: Vec<_> = error.run().undo_executions().iter().map(|one| one.call().to_string()).collect();
    assert_eq!(undone, [r#"refund {"cents":700}"#]);
}

#[tokio::test]
async fn a_tool_that_was_not_found_is_executed_and_offered_from_then_on() {
    let build = || {
        let model = ScriptedModel::new()
            .calls("forecast", r#"{"town": "Rome"}"#)
            .expects(offers(&["sum", "search_tools", "forecast"]))
            .calls("forecast", r#"{"city": "Rome"}"#)
            .says("It rains.");
        agent(model, search())
    };
    let answer = alike(build).await.unwrap();
    assert_eq!(answer.tool_executions()[1].output().unwrap().to_string(), "rain in Rome for 1 days");
}

#[tokio::test]
async fn up_to_the_threshold_only_deferred_tools_are_searched() {
    let few = || tools![sum, forecast, archive];
    let table: [(Option<ToolSearch>, &[&str]); 5] = [
        (None, &["sum", "forecast", "archive"]),
        (Some(ToolSearch::bm25().min_tools(4)), &["sum", "forecast", "search_tools"]),
        (Some(ToolSearch::bm25().min_tools(3)), &["search_tools"]),
        (Some(ToolSearch::bm25().min_tools(3).always_offer(["archive"])), &["archive", "search_tools"]),
        (Some(ToolSearch::bm25().always_offer(few())), &["sum", "forecast", "archive"]),
    ];
    for (search, expected) in table {
        let model = ScriptedModel::new().expects(offers(expected)).says("Done.");
        let builder = Agent::builder(model).tools(few());
        let builder = match search {
            Some(search) => builder.tool_search(search),
            None => builder,
        };
        builder.build().unwrap().ask("What now?").await.unwrap();
    }
}

#[tokio::test]
async fn a_required_tool_is_offered() {
    let table: [(ToolSearch, &[&str]); 2] = [
        (search(), &["sum", "forecast", "search_tools"]),
        (search().call_through(), &["sum", "forecast", "search_tools", "call_tool"]),
    ];
    for (search, offered) in table {
        let model = ScriptedModel::new()
            .expects(offers(offered))
            .calls("forecast", r#"{"city": "Rome"}"#)
            .expects(offers(offered))
            .says("It rains.");
        let agent = agent(model, search).tool_choice(ToolChoice::Tool("forecast".into()));
        agent.build().unwrap().ask("Rain?").await.unwrap();
    }
}

#[tokio::test]
async fn a_layer_that_chooses_few_tools_leaves_nothing_to_search() {
    let model = ScriptedModel::new().expects(offers(&["sum", "forecast"])).says("Done.");
    let few = guard::offer(|tool| ["sum", "forecast"].contains(&tool.name()));
    agent(model, search()).layer(few).build().unwrap().ask("What now?").await.unwrap();
}

/// A provider of tools that are new in every turn, as a server's can be.
struct Changing;

impl ToolProvider for Changing {
    fn tools<'a>(&'a self, request: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        let turn = request.messages().len();
        let tool = FunctionTool::new(format!("unlock_{turn}"), || "open").description("Opens a door");
        Box::pin(async move { Ok(ToolSet::default().with(tool)?) })
    }

    fn is_dynamic(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn tools_of_providers_are_searched_with_the_others() {
    for call_through in [false, true] {
        let found = |text: &str| {
            text.contains("forecast") && text.contains("unlock_1") && !text.contains("unrelated")
        };
        let model = ScriptedModel::new()
            .calls("search_tools", query("open the door, weather forecast"))
            .expects(move |request| found(&request.messages().last().unwrap().text()))
            .expects(move |request| match call_through {
                true => names(request) == ["search_tools", "call_tool"],
                // The provider no longer has the other tool.
                false => names(request) == ["search_tools", "forecast"],
            })
            .says("Done.");
        let search = ToolSearch::bm25().min_tools(11);
        let search = if call_through { search.call_through() } else { search };
        let agent = Agent::builder(model)
            .tools(others(20))
            .tool_provider(provide(|_| tools![forecast]))
            .tool_provider(Changing)
            .tool_search(search)
            .build()
            .unwrap();
        agent.ask("What now?").await.unwrap();
    }
}

#[tokio::test]
async fn refuses_tools_with_the_names_of_the_search() {
    for name in ["search_tools", "call_tool"] {
        let own = || FunctionTool::new(name, || "mine").description("Searches");
        let error =
            Agent::builder(ScriptedModel::new()).tools(own()).tool_search(search()).build().unwrap_err();
        assert!(matches!(error.kind(), BuildErrorKind::SearchToolName(taken) if taken == name), "{error}");
        let expected = format!(
            "the tool `{name}` uses a name reserved by tool search; give it another name with `rename` or `prefix`"
        );
        assert_eq!(error.to_string(), expected);
        let agent = agent(ScriptedModel::new(), search()).build().unwrap();
        let error = agent.ask("What now?").tools(ToolSet::default().with(own()).unwrap()).await.unwrap_err();
        assert!(matches!(error.kind(), RunErrorKind::Tools { .. }), "{error}");
        assert!(error.to_string().contains("the tools cannot be offered"), "{error}");
        // Without a search, the names are free.
        Agent::builder(ScriptedModel::new()).tools(own()).build().unwrap();
    }
    let error =
        agent(ScriptedModel::new(), ToolSearch::bm25().always_offer(["forcast"])).build().unwrap_err();
    assert_eq!(error.to_string(), "there is no tool `forcast` in the set; did you mean `forecast`?");
}

#[tokio::test]
async fn results_of_a_search_are_bounded() {
    let long = |number: usize| {
        let tool = FunctionTool::new(format!("door_{number}"), || "open");
        Arc::new(tool.description(format!("Opens a door.\n{}", "Very long. ".repeat(700)))) as Arc<dyn Tool>
    };
    let doors = || ToolSet::new((0..50).map(long)).unwrap();
    for call_through in [false, true] {
        let model = ScriptedModel::new()
            .calls("search_tools", query(&"open the door ".repeat(10_000)))
            .expects(move |request| {
                let text = request.messages().last().unwrap().text().into_owned();
                // Two definitions fit; the others are only named.
                let named = text.matches("its parameters are too long to be shown").count();
                println!("{call_through} {named} {} {}", text.len(), request.tools().len());
                text.len() < 20_000 && named >= 1 && request.tools().len() <= 4
            })
            .says("Done.");
        let search = ToolSearch::bm25().max_results(4);
        let search = if call_through { search.call_through() } else { search };
        Agent::builder(model).tools(doors()).tool_search(search).build().unwrap().ask("Open!").await.unwrap();
    }
}

#[tokio::test]
async fn a_search_without_a_match_returns_the_names_in_groups() {
    let expected = "No tool matches. Search with other words, one task at a time. These are the names of the tools, grouped by their \
        first word:\n\
        - unrelated (40): unrelated_0, unrelated_1, unrelated_2, unrelated_3, unrelated_4, unrelated_5, unrelated_6, \
        unrelated_7, unrelated_8, unrelated_9, …\n\
        - forecast (1): forecast\n- pay (1): pay\n- refund (1): refund\n- sum (1): sum";
    for (search, text) in [
        (search(), "Wie wird das Wetter?"),
        (search(), "12 34"),
        (search(), ""),
        (search().call_through(), "明日の天気"),
    ] {
        let model = ScriptedModel::new()
            .calls("search_tools", query(text))
            .expects(move |request| {
                assert_eq!(request.messages().last().unwrap().text(), expected);
                true
            })
            .says("Done.");
        agent(model, search).build().unwrap().ask("What now?").await.unwrap();
    }
    // The list is bounded.
    let letters = || 'a'..='z';
    let words = letters().flat_map(|one| letters().map(move |other| format!("{one}{other}_x")));
    let tools = words.map(|name| Arc::new(FunctionTool::new(name, || "nothing")) as Arc<dyn Tool>);
    let tools = ToolSet::new(tools).unwrap();
    let model = ScriptedModel::new()
        .calls("search_tools", query("12"))
        .expects(|request| request.messages().last().unwrap().text().lines().count() == 51)
        .says("Done.");
    let agent = Agent::builder(model).tools(tools).tool_search(ToolSearch::bm25());
    agent.build().unwrap().ask("What now?").await.unwrap();
}

fn system_messages(request: &ChatRequest<'_>) -> Vec<String> {
    let system = request.messages().iter().filter(|one| matches!(one, Message::System(_)));
    system.map(|one| one.text().into_owned()).collect()
}

#[tokio::test]
async fn the_model_that_takes_over_reads_its_own_instructions() {
    let build = || {
        let model = ScriptedModel::new()
            .expects(|request| system_messages(request) == ["You do billing."])
            .expects(offers(&["sum", "search_tools", "call_tool"]))
            .says("It is paid.");
        let billing = agent(model, search().call_through()).instructions("You do billing.");
        let desk = ScriptedModel::new().calls("call_tool", through("billing", &json!({})));
        agent(desk, search().call_through()).instructions("You are the first.").handoff_to(
            "billing",
            "Takes over invoices",
            &billing.build().unwrap(),
        )
    };
    assert_eq!(alike(build).await.unwrap().text(), "It is paid.");
}

#[tokio::test]
async fn the_agent_that_takes_over_searches_its_own_tools() {
    let build = || {
        let model = ScriptedModel::new()
            .calls("search_tools", query("archive a project"))
            .expects(|request| {
                let found = request.messages().last().unwrap().text().into_owned();
                found.contains("archive") && !found.contains("old_files")
            })
            .says("Archived.");
        let billing = Agent::builder(model).tools(tools![archive]).tool_search(ToolSearch::bm25());
        let old = FunctionTool::new("old_files", || "nothing").description("Archives a project");
        let desk =
            ScriptedModel::new().calls("search_tools", query("archive a project")).calls("billing", "{}");
        Agent::builder(desk)
            .tools(old)
            .tools(others(40))
            .tool_search(ToolSearch::bm25().min_tools(11))
            .handoff_to("billing", "Takes over", &billing.build().unwrap())
    };
    assert_eq!(alike(build).await.unwrap().text(), "Archived.");
}

#[test]
fn a_search_does_not_block_the_thread_of_the_run() {
    let build = || {
        let model = ScriptedModel::new().calls("search_tools", query("weather forecast")).says("It rains.");
        agent(model, search()).build().unwrap()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || released.recv());
        let agent = build();
        let mut run = agent.ask("Rain?").start();
        let Step::CallModel(request) = run.next().await.unwrap() else { panic!("a request") };
        let response = agent.model().chat(&request).await.unwrap();
        run.record_response(response).await.unwrap();
        let Step::CallTools(calls) = run.next().await.unwrap() else { panic!("a call") };
        let mut execution = pin!(run.execute(calls[0].clone()));
        // The search waits for the only thread for it, and the run's own goes on.
        for _ in 0..10 {
            assert!(poll_fn(|context| Poll::Ready(execution.as_mut().poll(context).is_pending())).await);
            tokio::task::yield_now().await;
        }
        release.send(()).unwrap();
        assert!(execution.await.unwrap().output().unwrap().to_string().contains("forecast"));
        busy.await.unwrap().unwrap();
    });
    // Without a runtime there is no other thread.
    let mut ask = pin!(build().ask("Rain?").into_future());
    let Poll::Ready(answer) = ask.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("an answer")
    };
    assert_eq!(answer.unwrap().text(), "It rains.");
}

/// A model whose provider searches up to this number of tools by itself.
struct Searching(ScriptedModel, usize);

impl ChatModel for Searching {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        self.0.chat(request)
    }

    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        self.0.stream(request)
    }

    fn supports_tool_search(&self, tools: usize) -> bool {
        tools <= self.1
    }
}

/// Accepts requests whose tools the provider searches, except these.
fn searches_all_but(always: &[&'static str]) -> impl Fn(&ChatRequest<'_>) -> bool + Send + use<> {
    let always = always.to_vec();
    move |request| {
        let at_once = request.tools().iter().filter(|tool| !tool.is_deferred()).map(|tool| tool.name());
        request.has_tool_search() && at_once.eq(always.iter().copied())
    }
}

fn by_provider() -> ToolSearch {
    ToolSearch::by_provider().min_tools(11).always_offer(tools![sum])
}

#[tokio::test]
async fn a_provider_that_searches_is_sent_all_tools() {
    let build = || {
        let all = |request: &ChatRequest<'_>| names(request).len() == 44 && names(request)[0] == "sum";
        let model = ScriptedModel::new()
            .expects(all)
            .expects(searches_all_but(&["sum"]))
            .calls("forecast", r#"{"city": "Rome", "days": "3"}"#)
            .expects(all)
            .expects(searches_all_but(&["sum"]))
            .calls("pay", r#"{"cents": 700}"#)
            .expects(searches_all_but(&["sum"]))
            .says("It rains.");
        Agent::builder(Searching(model, 44)).tools(many()).tool_search(by_provider())
    };
    let decide = |call: &ToolCall| {
        assert_eq!(call.to_string(), r#"pay {"cents": 700}"#);
        Decision::approve_with(r#"{"cents": 7}"#)
    };
    let answer = in_all_ways(build, decide).await.unwrap();
    let outputs: Vec<_> =
        answer.tool_executions().iter().map(|one| one.output().unwrap().to_string()).collect();
    assert_eq!(outputs, ["rain in Rome for 3 days", "paid 7"]);
    assert_eq!(answer.tool_executions()[0].repairs().len(), 1);
}

#[tokio::test]
async fn a_provider_that_searches_needs_no_found_tools_in_the_state() {
    let model = ScriptedModel::new().calls("forecast", r#"{"city": "Rome"}"#).fails("offline");
    let first = Agent::builder(Searching(model, 44)).tools(many()).tool_search(by_provider());
    let run = restored(first.build().unwrap().ask("Rain?").await.unwrap_err().into_run());
    assert_eq!(run.found_tools(), [""; 0]);
    // It can be resumed by an agent whose model has no such search.
    let model = ScriptedModel::new()
        .expects(offers(&["sum", "search_tools"]))
        .expects(|request| !request.has_tool_search())
        .says("Yes.");
    assert_eq!(agent(model, by_provider()).build().unwrap().resume(run).await.unwrap().text(), "Yes.");
}

#[tokio::test]
async fn without_a_search_of_the_provider_the_agent_searches() {
    let table = [
        (0, by_provider(), &["sum", "search_tools"][..]),
        (43, by_provider(), &["sum", "search_tools"]),
        (0, by_provider().call_through(), &["sum", "search_tools", "call_tool"]),
    ];
    for (searched, search, expected) in table {
        let build = || {
            let model = ScriptedModel::new()
                .expects(offers(expected))
                .expects(|request| !request.has_tool_search())
                .calls("search_tools", query("weather forecast"))
                .expects(|request| request.messages().last().unwrap().text().contains("forecast"))
                .says("It rains.");
            Agent::builder(Searching(model, searched)).tools(many()).tool_search(search.clone())
        };
        assert_eq!(alike(build).await.unwrap().text(), "It rains.");
    }
    // The search passes through pointers.
    let shared: Arc<dyn ChatModel> = Arc::new(Searching(ScriptedModel::new(), 3));
    assert!(shared.supports_tool_search(3) && !shared.supports_tool_search(4));
    assert!(!ScriptedModel::new().supports_tool_search(0));
}

#[tokio::test]
async fn a_provider_searches_only_what_is_to_be_found() {
    let few = || tools![sum, forecast, archive];
    let table: [(Option<ToolSearch>, bool, &[&str]); 5] = [
        // Without a search of the agent, the tool is only marked, as it was declared.
        (None, false, &["archive"]),
        (Some(ToolSearch::by_provider().min_tools(4)), true, &["archive"]),
        (Some(ToolSearch::by_provider().min_tools(3)), true, &["sum", "forecast", "archive"]),
        (Some(ToolSearch::by_provider().min_tools(3).always_offer(["archive"])), true, &["sum", "forecast"]),
        (Some(ToolSearch::by_provider().always_offer(few())), false, &["archive"]),
    ];
    for (search, has_search, expected) in table {
        let model = ScriptedModel::new()
            .expects(offers(&["sum", "forecast", "archive"]))
            .expects(move |request| request.has_tool_search() == has_search)
            .expects(move |request| {
                let deferred = request.tools().iter().filter(|tool| tool.is_deferred());
                deferred.map(|tool| tool.name()).eq(expected.iter().copied())
            })
            .says("Done.");
        let builder = Agent::builder(Searching(model, 3)).tools(few());
        let builder = match search {
            Some(search) => builder.tool_search(search),
            None => builder,
        };
        builder.build().unwrap().ask("What now?").await.unwrap();
    }
}

#[tokio::test]
async fn a_required_tool_is_not_left_to_the_provider() {
    let model = ScriptedModel::new()
        .expects(searches_all_but(&["forecast"]))
        .calls("forecast", r#"{"city": "Rome"}"#)
        .expects(searches_all_but(&["forecast"]))
        .says("It rains.");
    let agent = Agent::builder(Searching(model, 44)).tools(many()).tool_search(ToolSearch::by_provider());
    let agent = agent.tool_choice(ToolChoice::Tool("forecast".into())).build().unwrap();
    assert_eq!(agent.ask("Rain?").await.unwrap().text(), "It rains.");
}

#[tokio::test]
async fn tools_that_hand_off_need_not_be_found() {
    for search in [search(), search().call_through(), by_provider()] {
        let billing = Agent::builder(ScriptedModel::new().says("Paid.")).build().unwrap();
        let model = ScriptedModel::new()
            .expects(|request| {
                let at_once = request.tools().iter().filter(|tool| !tool.is_deferred());
                at_once.map(|tool| tool.name()).any(|name| name == "billing")
            })
            .calls("billing", "{}");
        let desk = Agent::builder(Searching(model, 100)).tools(many()).tool_search(search);
        let desk = desk.handoff_to("billing", "Answers questions about invoices", &billing).build().unwrap();
        assert_eq!(desk.ask("Is invoice 7 paid?").await.unwrap().text(), "Paid.");
    }
}

#[tokio::test]
async fn the_tool_of_a_typed_answer_need_not_be_found() {
    for search in [search(), search().call_through(), by_provider()] {
        let model = ScriptedModel::new()
            .expects(|request| {
                let at_once = request.tools().iter().filter(|tool| !tool.is_deferred());
                at_once.map(|tool| tool.name()).any(|name| name == "final_answer")
            })
            .calls("final_answer", r#"{"answer": 3}"#);
        let agent = Agent::builder(Searching(model, 100)).tools(many()).tool_search(search).build().unwrap();
        assert_eq!(agent.ask("How many?").answer_as::<u32>().await.unwrap(), 3);
    }
}
