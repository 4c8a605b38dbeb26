//! Tasks whose tools, deciders, stores, hosts or servers fail.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use tests::support::stores::stored_runs;
use tokio::net::TcpListener;
use tool_core::engine::CallRequest;
use tool_core::memory::{InMemoryStore, RunStatus};
use tool_core::model::{RunUser, ToolDefinition};
use tool_core::run::{Decision, Wait};
use tool_core::signatures::Timestamp;
use tool_core::store::RunStore;
use tool_core::tool::{Asker, ToolFuture};
use tool_core::{Tool, ToolCall, ToolContext, ToolError, ToolSet, tool, tools};
use tool_mcp::server::{Server, ServerErrorKind};

use super::newest::output;
use super::task_rules::{Stage, server as staged, within};
use super::tasks::{about, call, follows_tasks, send, spawn, task_id, until};
use super::tools::Witness;

/// What tools have done.
#[derive(Clone, Default)]
struct Done(Arc<Mutex<Vec<String>>>);

impl Done {
    fn add(&self, text: impl ToString) {
        self.0.lock().unwrap().push(text.to_string());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

#[tool("Books a seat and waits for the airline", undo = "leave")]
async fn book(seat: u32, #[inject] user: &Asker, #[inject] done: &Done) -> Result<String, ToolError> {
    if user.parked::<u32>()?.is_none() {
        done.add(format!("book {seat}"));
        return Err(user.park(&7, Timestamp::now().after(Duration::from_secs(24 * 3_600))).await.into());
    }
    Ok("booked".into())
}

#[tool("Leaves a seat", needs_approval)]
fn leave(seat: u32, #[inject] done: &Done) {
    done.add(format!("leave {seat}"));
}

#[tool("Pays a bill", needs_approval)]
fn pay(cents: u32) -> String {
    format!("paid {cents}")
}

#[tool("Says whose call it is")]
fn whose(cents: u32, #[inject] user: &RunUser) -> String {
    format!("{user} {cents}")
}

fn server(set: ToolSet, done: &Done) -> Server {
    Server::new(set)
        .context(ToolContext::new().with(done.clone()))
        .user(|headers| Some(RunUser::new(headers.get("x-user")?.to_str().ok()?)))
        .tasks(InMemoryStore::new())
}

/// From its beginning, or since it was parked.
#[tokio::test]
async fn a_cancelled_task_is_undone() {
    for is_long in [true, false] {
        let done = Done::default();
        let server = server(tools![book, leave], &done);
        let running = spawn(if is_long { server.long_call("book") } else { server }).await;
        let url = running.url();
        let id = task_id(&call(&url, "book", json!({ "seat": 7 }), json!({})).await);
        within(async {
            while done.0.lock().unwrap().is_empty() {
                tokio::task::yield_now().await
            }
        })
        .await;
        about(&url, "ada", "tasks/cancel", &id, json!({})).await;
        until(&url, &id, "cancelled").await;
        assert_eq!(done.take(), ["book 7", "leave 7"], "long: {is_long}");
    }
}

#[tokio::test]
async fn a_tool_whose_undo_can_be_undone_becomes_a_task() {
    #[tool("Opens the door", undo = "close")]
    fn open() {}
    #[tool("Closes the door", undo = "open_again")]
    fn close() {}
    #[tool("Opens the door again")]
    fn open_again() {}
    let server = server(tools![open, close, open_again], &Done::default()).long_call("open");
    let running = spawn(server).await;
    let id = task_id(&call(&running.url(), "open", json!({}), json!({})).await);
    until(&running.url(), &id, "completed").await;
}

#[tokio::test]
async fn what_undoes_a_tool_is_served_beside_it() {
    let done = Done::default();
    let error = server(tools![book], &done).into_service().unwrap_err();
    assert_eq!(error.kind(), ServerErrorKind::Tasks);
    let server = server(tools![book, leave], &done);
    let handle = server.tools_handle();
    let _service = server.into_service().unwrap();
    assert_eq!(handle.replace(tools![book]).unwrap_err().kind(), ServerErrorKind::Tasks);
    handle.replace(tools![book, leave]).unwrap();
}

/// As it would without a task, and does not go on as if it worked.
#[tokio::test]
async fn a_task_ends_whose_call_cannot_be_decided_or_lacks_a_value() {
    let panics: fn(&Wait) -> Decision = |_| panic!("the password is secret");
    let wrong: fn(&Wait) -> Decision = |_| Decision::answer("yes");
    let no_user =
        "the tool cannot be called: the application did not provide a `tool_core::model::run_user::RunUser`";
    for (decider, tool, expected) in [
        (panics, "pay", "the call was denied: the decision about it has failed"),
        (wrong, "pay", "the call was denied: the decision about it is invalid: "),
        (wrong, "whose", no_user),
    ] {
        for is_long in [true, false] {
            let server = server(tools![pay, whose], &Done::default()).decider(decider);
            let running = spawn(if is_long { server.long_call(tool) } else { server }).await;
            let url = running.url();
            let params = json!({ "name": tool, "arguments": { "cents": 5 } });
            let request = super::newest::request(&url, "tools/call", params, &follows_tasks());
            let answer = super::newest::send(request).await;
            let result = if is_long { ended(&url, &task_id(&answer)).await } else { answer };
            let text = result["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"));
            assert!(text.starts_with(expected), "{text}");
        }
    }
}

/// Asks, without a user, for a task until it has ended.
async fn ended(url: &str, id: &str) -> Value {
    within(async {
        loop {
            let params = json!({ "taskId": id });
            let request = super::newest::request(url, "tasks/get", params, &follows_tasks());
            let task = super::newest::send(request).await["result"].take();
            if task["status"] != "working" {
                return task;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

/// Notes that its call will not be continued.
struct GivesUp(ToolSet, Done);

impl Tool for GivesUp {
    fn definition(&self) -> &ToolDefinition {
        self.0.get("book").unwrap().definition()
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        self.0.get("book").unwrap().call(arguments, context)
    }

    fn wrapped(&self) -> Option<&dyn Tool> {
        self.0.get("book")
    }

    fn give_up(&self, _: &ToolContext) {
        self.1.add("give up");
    }
}

#[tool("Sends a letter that the user signs")]
async fn write(text: String, #[inject] user: &Asker, #[inject] done: &Done) -> Result<String, ToolError> {
    done.add("write");
    let name: Option<String> = user.ask("What is your signature?").secret().await.ok();
    Ok(format!("{} bytes of {name:?}", text.len()))
}

/// The host does not read that it can repeat the call.
#[tokio::test]
async fn a_call_that_was_executed_and_cannot_be_stored_has_an_unknown_outcome() {
    let (store, done) = (Stage::default(), Done::default());
    let book = GivesUp(tools![book], done.clone());
    let server = server(tools![leave, pay, write].with(book).unwrap(), &done);
    let running = spawn(server.decider(|_: &Wait| Decision::defer()).tasks(store.clone())).await;
    let url = running.url();
    task_id(&call(&url, "pay", json!({ "cents": 5 }), json!({})).await);
    let listed = vec![store.summaries().await.remove(0); 100];
    *store.0.listed.lock().unwrap() = Some(listed);
    let refused = call(&url, "book", json!({ "seat": 7 }), json!({})).await;
    assert!(output(&refused).starts_with("the outcome of the call is unknown"), "{refused}");
    assert_eq!(done.take(), ["book 7", "give up"]);
    // Arguments that are too long are known before.
    let answer = call(&url, "write", json!({ "text": "a".repeat(100_000) }), json!({})).await;
    assert_eq!(output(&answer), "100000 bytes of None");
}

#[tokio::test]
async fn a_call_that_cannot_ask_is_given_up() {
    #[tool("Records a long text and asks")]
    async fn book(#[inject] user: &Asker) -> Result<bool, ToolError> {
        user.once("text", async { Ok::<_, ToolError>("a".repeat(40_000)) }).await?;
        Ok(user.ask::<bool>("Really?").await?)
    }
    let done = Done::default();
    let running = spawn(server(tools![].with(GivesUp(tools![book], done.clone())).unwrap(), &done)).await;
    let refused = call(&running.url(), "book", json!({}), json!({})).await;
    assert!(output(&refused).ends_with("; the call may have had an effect"), "{refused}");
    assert_eq!(done.take(), ["give up"]);
}

/// Nobody has approved the call.
#[tokio::test]
async fn a_call_that_waits_does_not_go_on_with_a_tool_that_needs_approval_since() {
    mod other {
        #[tool_core::tool("Sends a letter that the user signs", needs_approval)]
        pub(super) fn write(text: String) -> String {
            format!("{text} is sent")
        }
    }
    for approves in [true, false] {
        let server = server(tools![write], &Done::default());
        let server = if approves { server.decider(|_: &Wait| Decision::defer()) } else { server };
        let server = server.allow_unapproved();
        let (agent, handle) = (server.task_agent().unwrap(), server.tools_handle());
        let running = spawn(server).await;
        let url = running.url();
        let id = task_id(&call(&url, "write", json!({ "text": "hello" }), json!({})).await);
        let (run, wait) = super::tasks::only_wait(&agent).await;
        handle.replace(tools![other::write]).unwrap();
        let decided = agent.decide(&run, &wait.id, Decision::answer("Ada")).await.unwrap();
        decided.resume().unwrap().await.unwrap();
        let ended = until(&url, &id, "completed").await;
        let expected = "the call was not executed: its tool has changed since the call began";
        assert_eq!(super::tasks::text_of(&ended), expected, "{approves}");
    }
}

#[tokio::test]
async fn a_task_is_cancelled_in_a_store_without_an_inbox() {
    let (store, witness) = (Stage::default(), Witness::default());
    store.0.has_no_inbox.store(true, Ordering::SeqCst);
    let running = spawn(staged(&store, &witness)).await;
    let id = task_id(&call(&running.url(), "pay", json!({ "cents": 5 }), json!({})).await);
    store.until(RunStatus::Waiting).await;
    about(&running.url(), "ada", "tasks/cancel", &id, json!({})).await;
    until(&running.url(), &id, "cancelled").await;
}

/// Otherwise recovery would execute what the host reads that it can repeat.
#[tokio::test]
async fn a_call_whose_save_fails_after_its_effect_is_cancelled() {
    for (tool, fails_to_post, expected) in [
        ("wait", false, "the call has to wait and cannot be stored"),
        ("pay", false, "the call has to wait and cannot be stored"),
        ("wait", true, "the outcome of the call is unknown"),
        ("pay", true, "the outcome of the call is unknown"),
    ] {
        let (store, witness) = (Stage::default(), Witness::default());
        store.0.fails_to_post.store(fails_to_post, Ordering::SeqCst);
        let running = spawn(staged(&store, &witness)).await;
        store.0.fails_after_save.store(true, Ordering::SeqCst);
        let refused = call(&running.url(), tool, json!({ "cents": 5 }), json!({})).await;
        assert!(output(&refused).starts_with(expected), "{tool}: {refused}");
        let run = store.summaries().await.remove(0);
        let is_cancelled = run.is_cancellation_posted || run.status == RunStatus::Finished;
        assert_eq!(is_cancelled, !fails_to_post, "{tool}: {run:?}");
    }
}

/// So no other process takes it for one that nobody has started.
#[tokio::test]
async fn a_deferred_call_waits_as_soon_as_it_is_stored() {
    let (store, witness) = (Stage::default(), Witness::default());
    let running = spawn(staged(&store, &witness)).await;
    task_id(&call(&running.url(), "pay", json!({ "cents": 5 }), json!({})).await);
    store.until(RunStatus::Waiting).await;
    assert!(!store.0.was_driven.load(Ordering::SeqCst));
}

/// Another process would execute the call without the scopes of its request, and also if its host has cancelled it.
#[tokio::test]
async fn a_task_that_is_stored_and_not_yet_driven_is_left_to_its_server() {
    let (store, witness) = (Stage::default(), Witness::default());
    let running = spawn(staged(&store, &witness)).await;
    let [saved, release] = store.hold_after_next_save();
    let url = running.url();
    let calling = tokio::spawn(async move { call(&url, "wait", json!({}), json!({})).await });
    within(saved.notified()).await;
    let executes = Witness::default();
    executes.release.notify_one();
    let other = staged(&store, &executes).task_agent().unwrap();
    assert_eq!(within(other.recover().once()).await.unwrap(), 0);
    release.notify_one();
    let id = task_id(&within(calling).await.unwrap());
    within(witness.started.notified()).await;
    witness.release.notify_one();
    assert_eq!(super::tasks::text_of(&until(&running.url(), &id, "completed").await), "released");
}

/// A run that is continued has the same time to end as one that this server began.
#[tokio::test(start_paused = true)]
async fn tasks_that_were_continued_go_on_after_the_end_of_the_input() {
    let (store, witness) = (Stage::default(), Witness::default());
    let server = staged(&store, &witness).record_messages();
    let agent = server.task_agent().unwrap();
    let request = CallRequest::standalone(ToolCall::new("call_0", "wait", "{}"));
    let mut run = request.into_run(agent.name(), "Go on").unwrap();
    store.save_run(&run.id().to_string(), &mut run).await.unwrap();
    let (client, stream) = tokio::io::duplex(64);
    let (input, output) = tokio::io::split(stream);
    let serving = tokio::spawn(server.serve_streams(input, output));
    within(witness.started.notified()).await;
    drop(client);
    // Less than the time that it has.
    tokio::time::sleep(Duration::from_secs(1)).await;
    witness.release.notify_one();
    serving.await.unwrap().unwrap();
    store.until(RunStatus::Finished).await;
}

/// Those that wait for their turn take no memory.
#[tokio::test]
async fn tasks_that_are_continued_are_loaded_in_their_turn() {
    let (store, witness) = (Stage::default(), Witness::default());
    let server = staged(&store, &witness);
    let agent = server.task_agent().unwrap();
    for index in 0..33 {
        let mut request = CallRequest::standalone(ToolCall::new("call_0", "wait", "{}"));
        request.attempt.key = format!("task_ada_{index}/call_0").into();
        let mut run = request.into_run(agent.name(), "Go on").unwrap();
        store.save_run(&run.id().to_string(), &mut run).await.unwrap();
    }
    let running = spawn(server).await;
    let mut max_running = witness.max_running.subscribe();
    drop(within(max_running.wait_for(|max| *max == 32)).await.unwrap());
    assert_eq!(store.0.loaded.load(Ordering::SeqCst), 32);
    running.stop_within(Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn tasks_stop_with_the_service_that_is_dropped() {
    let (store, witness) = (Stage::default(), Witness::default());
    let app = axum::Router::new().route_service("/mcp", staged(&store, &witness).into_service().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move { axum::serve(listener, app).await });
    task_id(&call(&url, "wait", json!({}), json!({})).await);
    within(witness.started.notified()).await;
    serving.abort();
    within(witness.cancelled.notified()).await;
    store.until(RunStatus::Interrupted).await;
}

#[tokio::test]
async fn wrong_parameters_of_tasks_are_described() {
    let tasks = spawn(server(tools![], &Done::default())).await;
    let none = spawn(Server::new(tools![])).await;
    for (method, params) in [
        ("tasks/get", json!({})),
        ("tasks/update", json!({ "taskId": "0-17" })),
        ("tasks/cancel", json!({ "taskId": 17 })),
    ] {
        for (url, code) in [(tasks.url(), -32602), (none.url(), -32601)] {
            let answer = send(&url, "ada", method, params.clone(), follows_tasks()).await;
            assert_eq!(answer["error"]["code"], code, "{answer}");
        }
    }
}

/// Also of callers that have gone, whose requests are not counted any more.
#[tokio::test]
async fn the_number_of_calls_that_wait_to_be_stored_is_bounded() {
    let (store, witness) = (Stage::default(), Witness::default());
    let running = spawn(staged(&store, &witness)).await;
    let url = running.url();
    let [saving, release] = store.hold_next_save();
    let pay = || call(&url, "pay", json!({ "cents": 5 }), json!({}));
    let mut calls: FuturesUnordered<_> = (0..65).map(|_| pay()).collect();
    let refused = within(calls.next()).await.unwrap();
    assert_eq!(output(&refused), "too many calls wait; try again later");
    within(saving.notified()).await;
    release.notify_one();
    while let Some(created) = within(calls.next()).await {
        task_id(&created);
    }
}

/// Nobody answers a call that ends.
#[tokio::test]
async fn a_task_that_is_cancelled_asks_nothing() {
    #[tool("Asks")]
    async fn ask(#[inject] user: &Asker) -> Result<String, ToolError> {
        Ok(user.ask("Who are you?").await?)
    }
    let store = Arc::new(InMemoryStore::new());
    let server = server(tools![ask], &Done::default()).tasks(Arc::clone(&store)).long_call("ask");
    let agent = server.task_agent().unwrap();
    let running = spawn(server).await;
    let url = running.url();
    let id = task_id(&call(&url, "ask", json!({}), json!({})).await);
    until(&url, &id, "input_required").await;
    let run = stored_runs(&agent).await.remove(0).run;
    agent.cancel(run.id()).await.unwrap();
    let task = about(&url, "ada", "tasks/get", &id, json!({})).await;
    assert_ne!(task["result"]["status"], "input_required", "{task}");
}
