//! Paused runs in the run store of an agent, which another process continues.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tests::support::stores::run_ids;
use tool_core::agent::AgentBuilder;
use tool_core::memory::{InMemoryStore, SqliteStore};
use tool_core::model::ToolDefinition;
use tool_core::store::RunStore;
use tool_core::testing::ScriptedModel;
use tool_core::tool::{Asker, ExternalTool};
use tool_core::{Agent, ToolError, tool, tools};
use tool_openai::server::Server;

use crate::caller::{Answer, Caller};
use crate::callers_tools::{APIS, ask, first_request, second_request};
use crate::repeating::{self, Bookings, CHAT, SOON, disconnect, results};

#[tool("Returns a long text")]
fn large() -> String {
    "x".repeat(1 << 20)
}

#[tool("Books a row")]
async fn reserve(#[inject] user: &Asker) -> Result<String, ToolError> {
    let row: u8 = user.ask("Which row?").await?;
    Ok(format!("row {row}"))
}

/// Serves an agent as a process does that has just been started.
async fn start(agent: AgentBuilder, store: &Arc<dyn RunStore>) -> Caller {
    let agent = agent.run_store(Arc::clone(store)).build().unwrap();
    Caller::new(Server::new().agent("agent", agent)).await
}

fn in_memory() -> Arc<dyn RunStore> {
    Arc::new(InMemoryStore::new())
}

fn code(answer: &Answer) -> (u16, Option<&str>) {
    (answer.status, answer.body["error"]["code"].as_str())
}

fn read(model: &ScriptedModel, number: usize) -> Vec<String> {
    model.requests()[number].iter().map(|message| message.text().into_owned()).collect()
}

#[tokio::test]
async fn a_paused_run_survives_a_restart() {
    let file = std::env::temp_dir().join(format!("served-{}.sqlite", std::process::id()));
    for (api, is_streamed) in APIS.into_iter().flat_map(|api| [(api, false), (api, true)]) {
        let open = async || Arc::new(SqliteStore::open(&file).await.unwrap()) as Arc<dyn RunStore>;
        let (bookings, model) = (Bookings::default(), ScriptedModel::new());
        let model = model.calls_all([("book", "{}"), ("locate", "{}")]).says("There.").says("Again.");
        let before = start(repeating::agent(&bookings, &model), &open().await).await;
        let (content, calls, _) = ask(&before, api, &first_request(api), is_streamed).await;
        let request = second_request(api, &content, &calls);
        drop(before);
        let store = open().await;
        let after = start(repeating::agent(&bookings, &model), &store).await;
        for _ in 0..2 {
            assert_eq!(ask(&after, api, &request, is_streamed).await.0, "There.", "{api}");
        }
        // The result of the agent's own call is known.
        assert_eq!(read(&model, 1)[2..], ["1", "Rome"], "{api}");
        assert_eq!((bookings.count(), model.requests().len()), (1, 2), "{api}");
        assert!(run_ids(&store).await.is_empty(), "{api}");
    }
    for extension in ["sqlite", "sqlite-wal", "sqlite-shm"] {
        let _ = std::fs::remove_file(file.with_extension(extension));
    }
}

#[tokio::test]
async fn a_question_survives_a_restart_and_is_answered_once() {
    let store = in_memory();
    let model = ScriptedModel::new().calls("reserve", "{}").says("Done.");
    let agent = || Agent::builder(model.clone()).tools(tools![reserve]);
    let before = start(agent(), &store).await;
    let question = json!({ "role": "user", "content": "Go" });
    let function = json!([{ "type": "function", "function": { "name": "ask_user" } }]);
    let request = json!({ "model": "agent", "messages": [question], "tools": function });
    let reply = before.ask(CHAT, &request).await["choices"][0]["message"].clone();
    drop(before);
    let after = start(agent(), &store).await;
    let answered = |text: &str, messages: &[Value]| {
        let result = json!({ "role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": text });
        let messages = [&[question.clone(), reply.clone(), result], messages].concat();
        json!({ "model": "agent", "messages": messages, "tools": function })
    };
    let said = json!({ "role": "user", "content": "Quickly." });
    let answer = after.ask(CHAT, &answered("7", std::slice::from_ref(&said))).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "Done.");
    assert_eq!(read(&model, 1)[2..], ["row 7", "Quickly."]);
    drop(after);
    let later = start(agent(), &store).await;
    for text in ["7", "8"] {
        let closed = later.post(CHAT, &answered(text, &[])).await;
        assert_eq!(code(&closed), (409, Some("question_closed")));
    }
}

#[tokio::test]
async fn what_a_request_has_begun_is_continued_by_its_repetition_after_a_restart() {
    let (store, bookings) = (in_memory(), Bookings::default());
    let model = ScriptedModel::new().calls("locate", "{}").calls("book", "{}").fails("down").says("Booked.");
    let start = async || start(repeating::agent(&bookings, &model), &store).await;
    let before = start().await;
    let request = results(&before, CHAT, false).await;
    assert_eq!(before.post(CHAT, &request).await.status, 500);
    drop(before);
    // Other results are not those that the run has.
    let mut other = request.clone();
    other["messages"][2]["content"] = json!("Paris");
    let after = start().await;
    assert_eq!(ask(&after, CHAT, &request, true).await.0, "Booked.");
    assert_eq!(bookings.count(), 1);
    let other = after.post(CHAT, &other).await;
    assert_eq!(other.status, 500, "a run of its own, whose script is over: {}", other.body);
}

#[tokio::test]
async fn a_call_whose_outcome_is_unknown_is_reported_after_a_restart() {
    let (store, bookings) = (in_memory(), Bookings::default());
    let model = ScriptedModel::new().calls("locate", "{}").calls("book_once", "{}").says("Let us see.");
    let start = async || start(repeating::agent(&bookings, &model), &store).await;
    let before = start().await;
    let request = results(&before, CHAT, false).await;
    disconnect(&before, &bookings, &request).await;
    tokio::time::timeout(SOON, bookings.dropped.notified()).await.unwrap();
    drop(before);
    let after = start().await;
    assert_eq!(code(&after.post(CHAT, &request).await), (409, Some("outcome_unknown")));
    assert_eq!((bookings.count(), model.requests().len()), (0, 2));
}

/// Of two processes that share a store, one continues a run.
#[tokio::test]
async fn a_run_that_another_process_continues_is_a_conflict() {
    let (store, bookings) = (in_memory(), Bookings::default());
    let model = ScriptedModel::new().calls("locate", "{}").calls("book_once", "{}").says("Booked.");
    let start = async || start(repeating::agent(&bookings, &model), &store).await;
    let (one, other) = (start().await, start().await);
    let request = results(&one, CHAT, false).await;
    let begun = async {
        tokio::time::timeout(SOON, bookings.started.notified()).await.unwrap();
        let repeated = other.post(CHAT, &request).await;
        assert_eq!(code(&repeated), (409, Some("run_conflict")));
        bookings.release.notify_one();
    };
    let (answer, ()) = futures_util::future::join(ask(&one, CHAT, &request, false), begun).await;
    assert_eq!((&*answer.0, bookings.count()), ("Booked.", 1));
}

/// A caller of another key, or of another model of the same agent, finds no run, whatever it knows.
#[tokio::test]
async fn only_the_caller_of_the_run_continues_it() {
    let store = in_memory();
    // What a foreign caller gets is built from its messages.
    let model = ScriptedModel::new().calls_all([("vault", "{}"), ("locate", "{}")]).says("As rebuilt.");
    let model = (0..4).fold(model, |model, _| model.says("As rebuilt."));
    let vault = ExternalTool::new(ToolDefinition::new("vault"));
    let agent = Agent::builder(model.clone()).tools(vault).run_store(store.clone()).build().unwrap();
    let server = Server::new().agent("agent", agent.clone()).agent("other", agent);
    let caller = Caller::new(server.api_key("sk-owner").api_key("sk-other")).await;
    let post =
        async |key: &str, body: &Value| caller.send(caller.request(CHAT, body).bearer_auth(key), CHAT).await;
    let first = first_request(CHAT);
    let paused = post("sk-owner", &first).await.body;
    let calls = paused["choices"][0]["message"]["tool_calls"].as_array().unwrap().clone();
    // The call of the application is not the caller's.
    assert_eq!((calls.len(), &calls[0]["function"]["name"]), (1, &json!("locate")));
    let id = calls[0]["id"].as_str().unwrap();
    assert_eq!(id.len(), 40, "providers take no longer ids");
    let request = |model: &str, id: &str| {
        let mut request = second_request(CHAT, "", &[(id.to_owned(), "{}".to_owned())]);
        request["model"] = json!(model);
        request
    };
    let run = run_ids(&store).await.remove(0);
    let revision = async || store.load_run(&run).await.unwrap().unwrap().revision().cloned();
    let before = revision().await;
    let last = if id.ends_with('0') { "1" } else { "0" };
    let forged = format!("{}{last}", &id[..39]);
    for (key, model, id) in [
        ("sk-other", "agent", id),
        ("sk-owner", "other", id),
        ("sk-owner", "agent", &*forged),
        ("sk-owner", "agent", &run[..]),
    ] {
        let answer = post(key, &request(model, id)).await;
        assert_eq!(answer.body["choices"][0]["message"]["content"], "As rebuilt.", "{key} {model} {id}");
        assert_eq!(revision().await, before, "{key} {model} {id}");
        assert!(store.posted(&run).await.unwrap().is_empty(), "{key} {model} {id}");
    }
    // The owner's result is recorded. The run then waits for the application.
    assert_eq!(post("sk-owner", &request("agent", id)).await.status, 500);
    let run = store.load_run(&run).await.unwrap().unwrap();
    let waits: Vec<_> = run.waits().into_iter().map(|wait| wait.tool).collect();
    assert_eq!(waits, ["vault"]);
}

/// A small request can continue a large run.
#[tokio::test]
async fn a_continued_run_counts_as_much_as_a_body() {
    for (limit, status) in [(1 << 20, 503), (4 << 20, 200)] {
        let model = ScriptedModel::new().calls("large", "{}").calls("locate", "{}").says("There.");
        let agent = Agent::builder(model).tools(tools![large]).build().unwrap();
        let server = Server::new().agent("agent", agent).max_body_bytes(10_000).max_total_body_bytes(limit);
        let caller = Caller::new(server).await;
        let request = results(&caller, CHAT, false).await;
        assert_eq!(caller.post(CHAT, &request).await.status, status, "{limit}");
    }
}

/// Requests that fail must not displace the runs that wait.
#[tokio::test]
async fn failed_requests_displace_no_waiting_run() {
    let model = ScriptedModel::new().calls("locate", "{}").fails("down").fails("down").says("There.");
    let agent = Agent::builder(model).build().unwrap();
    let server = Server::new().agent("agent", agent.clone()).max_stored_entries(1);
    let caller = Caller::new(server).await;
    let request = results(&caller, CHAT, false).await;
    for _ in 0..2 {
        assert_eq!(caller.post(CHAT, &first_request(CHAT)).await.status, 500);
    }
    let store = agent.run_store().unwrap();
    assert_eq!(run_ids(store).await.len(), 1);
    assert_eq!(ask(&caller, CHAT, &request, false).await.0, "There.");
    assert!(run_ids(store).await.is_empty());
}

/// The caller came too late, or the application cancelled the run.
#[tokio::test]
async fn the_calls_of_an_expired_run_are_not_executed_again() {
    let (store, bookings) = (in_memory(), Bookings::default());
    let model = ScriptedModel::new().calls_all([("book", "{}"), ("locate", "{}")]).says("Let us see.");
    let agent = || repeating::agent(&bookings, &model);
    let before = start(agent(), &store).await;
    let (content, calls, _) = ask(&before, CHAT, &first_request(CHAT), false).await;
    let mut request = second_request(CHAT, &content, &calls);
    drop(before);
    let after = start(agent().max_run_age(Duration::ZERO), &store).await;
    assert_eq!(code(&after.post(CHAT, &request).await), (409, Some("run_ended")));
    request["messages"].as_array_mut().unwrap().push(json!({ "role": "user", "content": "Go on" }));
    assert_eq!(ask(&after, CHAT, &request, false).await.0, "Let us see.");
    assert_eq!(bookings.count(), 1);
}

/// Nobody can continue them.
#[tokio::test]
async fn runs_of_callers_that_leave_displace_no_paused_run() {
    let bookings = Bookings::default();
    let model = ScriptedModel::new().calls_all([("book", "{}"), ("locate", "{}")]);
    let model = model.calls("book_slowly", "{}").calls("book_slowly", "{}").says("There.");
    let agent = repeating::agent(&bookings, &model).build().unwrap();
    let caller = Caller::new(Server::new().max_stored_entries(1).agent("agent", agent)).await;
    let (content, calls, _) = ask(&caller, CHAT, &first_request(CHAT), false).await;
    for _ in 0..2 {
        disconnect(&caller, &bookings, &first_request(CHAT)).await;
        tokio::time::timeout(SOON, bookings.dropped.notified()).await.unwrap();
    }
    let request = second_request(CHAT, &content, &calls);
    assert_eq!(ask(&caller, CHAT, &request, false).await.0, "There.");
    assert_eq!(bookings.count(), 1);
}

#[tokio::test]
async fn a_repeated_call_id_continues_no_run() {
    let (store, bookings) = (in_memory(), Bookings::default());
    let model = ScriptedModel::new().calls("locate", "{}").says("A run of its own.");
    let caller = start(repeating::agent(&bookings, &model), &store).await;
    let mut request = results(&caller, CHAT, false).await;
    let calls = request["messages"][1]["tool_calls"].as_array_mut().unwrap();
    calls.push(calls[0].clone());
    let _ = caller.post(CHAT, &request).await;
    assert_eq!(run_ids(&store).await.len(), 1, "the paused run still waits");
}
