//! Layers that choose the tools of a turn, and the places at which requests are rewritten.

use std::sync::{Arc, Mutex};

use tests::support::ways::{alike, restored};
use tool_core::layer::{LayerContext, guard, rewrite};
use tool_core::model::{AssistantMessage, ChatRequest, ToolChoice, ToolMessage};
use tool_core::schemars::{self, JsonSchema};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, Message, RunErrorKind, ToolCall, tool, tools};

#[tool("Searches")]
fn search(query: String) -> String {
    query
}

#[tool("Deletes all")]
fn delete() {}

struct IsAdmin(bool);

fn names(request: &ChatRequest<'_>) -> Vec<String> {
    request.tools().iter().map(|tool| tool.name().to_owned()).collect()
}

#[tokio::test]
async fn tools_depend_on_the_user_and_the_turn() {
    for is_admin in [false, true] {
        let build = move || {
            let all: &[&str] = if is_admin { &["search", "delete"] } else { &["search"] };
            let model = ScriptedModel::new()
                .expects(move |request| names(request) == all)
                .calls_all([("search", r#"{"query": "a"}"#), ("delete", "{}")])
                .expects(move |request| names(request) == all[1..])
                .calls("search", r#"{"query": "b"}"#)
                .says("Done.");
            let chosen = guard::offer_with_context(|tool, at| match tool.name() {
                "search" => at.turn == 1,
                _ => at.context.get().is_some_and(|IsAdmin(is_admin)| *is_admin),
            });
            Agent::builder(model).tools(tools![search, delete]).context(IsAdmin(is_admin)).layer(chosen)
        };
        let answer = alike(build).await.unwrap();
        let texts: Vec<_> =
            answer.tool_executions().iter().map(|one| Message::from(one).text().into_owned()).collect();
        let (deleted, searched) = match is_admin {
            true => ("Success", "there is no tool `search`; the tools are `delete`"),
            false => (
                "there is no tool `delete`; the tools are `search`",
                "there is no tool `search`; there are no tools",
            ),
        };
        assert_eq!(texts, ["a", deleted, searched]);
    }
}

/// The definitions of a set are serialized once, and the prompt cache of the provider is hit.
#[tokio::test]
async fn the_set_stays_the_same_while_the_same_tools_are_left_out() {
    let sets = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sets);
    let record = move |request: &ChatRequest<'_>| {
        seen.lock().unwrap().push(request.tools().as_ptr() as usize);
        true
    };
    let (first, second, third) = (record.clone(), record.clone(), record);
    let call = r#"{"query": "a"}"#;
    let model =
        ScriptedModel::new().expects(first).calls("search", call).expects(second).calls("search", call);
    let model = model.expects(third).says("Done.");
    let chosen = guard::offer_with_context(|tool, at| tool.name() == "search" || at.turn > 2);
    Agent::builder(model)
        .tools(tools![search, delete])
        .layer(chosen)
        .build()
        .unwrap()
        .ask("Go")
        .await
        .unwrap();
    let sets = sets.lock().unwrap();
    assert_eq!(sets[0], sets[1]);
    assert_ne!(sets[1], sets[2]);
}

#[derive(serde::Deserialize, JsonSchema, Debug, PartialEq)]
struct City {
    name: String,
}

#[tokio::test]
async fn the_tool_of_a_typed_answer_is_always_offered() {
    let model = ScriptedModel::new().expects(|request| request.tools().len() == 1);
    let model = model.calls("final_answer", r#"{"name": "Rome"}"#);
    let agent = Agent::builder(model).tools(tools![search]).layer(guard::offer(|_| false)).build().unwrap();
    let city = agent.ask("Which city?").answer_as::<City>().by_tool().await.unwrap();
    assert_eq!(city, City { name: "Rome".into() });
}

#[tokio::test]
async fn a_tool_that_must_be_called_cannot_be_left_out() {
    let table = [
        (
            ToolChoice::Tool("search".into()),
            "the tools cannot be offered: the model must call the tool `search`, which does not exist",
        ),
        (
            ToolChoice::Required,
            "the tools cannot be offered: the model must call a tool, but there is none; add one with `tools`",
        ),
    ];
    for (choice, expected) in table {
        let agent = Agent::builder(ScriptedModel::new()).tools(tools![search]).tool_choice(choice);
        let error = agent.layer(guard::offer(|_| false)).build().unwrap().ask("Go").await.unwrap_err();
        assert!(matches!(error.kind(), RunErrorKind::Tools { .. }));
        assert_eq!(error.to_string(), expected);
    }
}

/// Each layer gets the place as its own agent sees it.
#[tokio::test]
async fn requests_have_places() {
    struct Who(&'static str);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = |layer: &'static str| {
        let seen = Arc::clone(&seen);
        move |what: &'static str, at: &LayerContext<'_>| {
            let who = at.context.get().map_or("-", |Who(who)| who);
            let (agents, messages) = (at.agents.join("/"), at.messages.len());
            seen.lock().unwrap().push(format!("{layer} {what}: {agents} {} {messages} {who}", at.turn));
        }
    };
    let layers = |layer: &'static str| {
        let (tool, request) = (note(layer), note(layer));
        let tools = guard::offer_with_context(move |_, at| {
            tool("tool", at);
            true
        });
        let requests = rewrite::request_with_context(move |written, at| {
            request("request", at);
            written
        });
        (tools, requests)
    };
    let inner_model = ScriptedModel::new().calls("search", r#"{"query": "a"}"#).says("Found.");
    let (tools, requests) = layers("inner");
    let inner = Agent::builder(inner_model).tools(tools![search]).context(Who("inner"));
    let inner = inner.layer(tools).layer(requests).build().unwrap();
    let (tools, requests) = layers("outer");
    let outer = Agent::builder(ScriptedModel::new().calls("desk", r#"{"question": "a?"}"#).says("Done."));
    let outer = outer.tools(inner.as_tool("desk", "Answers")).context(Who("outer"));
    outer.layer(tools).layer(requests).build().unwrap().ask("Go").await.unwrap();
    let expected = [
        "outer tool:  1 1 outer",
        "outer request:  1 1 outer",
        "outer tool: desk 1 1 outer",
        "inner tool:  1 1 inner",
        "outer request: desk 1 1 outer",
        "inner request:  1 1 inner",
        "outer tool: desk 2 3 outer",
        "inner tool:  2 3 inner",
        "outer request: desk 2 3 outer",
        "inner request:  2 3 inner",
        "outer tool:  2 3 outer",
        "outer request:  2 3 outer",
    ];
    assert_eq!(*seen.lock().unwrap(), expected);
}

/// The model calls a tool that it was not offered, and the run is continued by a process for which the tool is offered.
#[tokio::test]
async fn a_tool_that_was_left_out_is_not_executed_after_a_restart() {
    let model = ScriptedModel::new().calls("search", r#"{"query": "a"}"#).says("Done.");
    let chosen =
        guard::offer_with_context(|_, at| at.context.get().is_some_and(|IsAdmin(is_admin)| *is_admin));
    let agent = Agent::builder(model).tools(tools![search]).layer(chosen).build().unwrap();
    let mut driver = agent.ask("Go").context(IsAdmin(false)).start();
    assert!(driver.advance().await.unwrap());
    let run = restored(driver.run().clone());
    drop(driver);
    let answer = agent.resume(run).context(IsAdmin(true)).await.unwrap();
    assert_eq!(answer.new_messages()[2].text(), "there is no tool `search`; there are no tools");
}

/// The ids of calls are repeated in a history that the caller supplies, as by servers that count calls from zero.
#[tokio::test]
async fn results_that_a_layer_removes_are_restored_to_their_calls() {
    let turn = |text: &str| {
        let call = AssistantMessage::default().with_tool_calls([ToolCall::new("call_0", "search", "{}")]);
        [
            Message::user("Q"),
            Message::Assistant(call),
            Message::Tool(ToolMessage::new("call_0", "search", text)),
            Message::Assistant(AssistantMessage::text("A")),
        ]
    };
    let history = [turn("first"), turn("second")].concat();
    for removed in [&["first", "second"][..], &["first"], &["second"]] {
        let model = ScriptedModel::new().says("Done.");
        let without = rewrite::request(move |request| {
            let is_kept =
                |one: &&Message| !matches!(one, Message::Tool(_)) || !removed.contains(&&*one.text());
            let kept: Vec<_> = request.messages().iter().filter(is_kept).cloned().collect();
            request.with_messages(kept)
        });
        let agent = Agent::builder(model.clone()).tools(tools![search]).layer(without).build().unwrap();
        agent.ask("Go").history(history.clone()).await.unwrap();
        assert_eq!(model.requests()[0][..history.len()], history, "{removed:?}");
    }
}
