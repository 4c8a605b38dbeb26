//! Calls that wait, or take long, as tasks of the host.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tests::support::stores::stored_runs;
use tokio::sync::Notify;
use tool_core::memory::{InMemoryStore, RunStatus};
use tool_core::model::RunUser;
use tool_core::run::{Decision, Wait};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{Asker, IdempotencyKey};
use tool_core::{Agent, CancellationToken, ToolContext, ToolError, tool, tools};
use tool_mcp::McpServer;
use tool_mcp::server::{
    Authorize, AuthorizeFuture, Credentials, Principal, ProtectedResource, RunningServer, Server,
    ServerErrorKind,
};

use super::newest::{self, output};

/// What tools have done.
#[derive(Clone, Default)]
struct Done {
    texts: Arc<Mutex<Vec<String>>>,
    cancelled: Arc<Notify>,
}

impl Done {
    fn add(&self, text: impl ToString) {
        self.texts.lock().unwrap().push(text.to_string());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.texts.lock().unwrap())
    }
}

#[tool("Pays a bill", needs_approval)]
fn pay(cents: u32, #[inject] done: &Done, #[inject] user: &RunUser) -> String {
    done.add(format!("{user} pays {cents}"));
    format!("paid {cents}")
}

#[tool("Books a seat for the user, which the airline confirms")]
async fn book(
    #[inject] user: &Asker,
    #[inject] done: &Done,
    #[inject] key: &IdempotencyKey,
) -> Result<String, ToolError> {
    let number = user.once("number", async { Ok::<_, ToolError>(17) }).await?;
    done.add(key);
    let seat: String = user.ask("Which seat?").await?;
    let code: String = user.ask("Which code has the airline sent?").secret().await?;
    Ok(format!("booked {seat} as {number} with {code}"))
}

#[tool("Asks twice at once")]
async fn register(#[inject] user: &Asker) -> Result<String, ToolError> {
    let (name, age) = (user.ask::<String>("What is your name?"), user.ask::<u8>("How old are you?"));
    let (name, age) = futures_util::future::join(name.into_future(), age.into_future()).await;
    Ok(format!("{} is {}", name?, age?))
}

#[tool("Works until it is cancelled")]
async fn work(#[inject] cancellation: &CancellationToken, #[inject] done: &Done) {
    let (cancelled, done) = (cancellation.clone().cancelled_owned(), done.clone());
    tokio::spawn(async move {
        cancelled.await;
        done.cancelled.notify_one();
    });
    std::future::pending::<()>().await;
}

fn server(store: &Arc<InMemoryStore>, done: &Done) -> Server {
    Server::new(tools![pay, book, register, work])
        .name("desk")
        .context(ToolContext::new().with(done.clone()))
        .user(|headers| Some(RunUser::new(headers.get("x-user")?.to_str().ok()?)))
        .decider(|_: &Wait| Decision::defer())
        .tasks(Arc::clone(store))
        .long_call("register")
        .long_call("work")
}

pub(super) async fn spawn(server: Server) -> RunningServer {
    server.spawn("127.0.0.1:0").await.unwrap()
}

/// The capabilities of a host that follows tasks.
pub(super) fn follows_tasks() -> Value {
    json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } })
}

/// Sends a request of a user and returns the JSON-RPC message.
pub(super) async fn send(url: &str, user: &str, method: &str, params: Value, capabilities: Value) -> Value {
    newest::send(newest::request(url, method, params, &capabilities).header("x-user", user)).await
}

pub(super) async fn call(url: &str, tool: &str, arguments: Value, more: Value) -> Value {
    let mut params = json!({ "name": tool, "arguments": arguments });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    send(url, "ada", "tools/call", params, follows_tasks()).await
}

/// Sends a request about a task.
pub(super) async fn about(url: &str, user: &str, method: &str, id: &str, more: Value) -> Value {
    let mut params = json!({ "taskId": id });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    send(url, user, method, params, follows_tasks()).await
}

/// Returns the id of the task that a call has become.
pub(super) fn task_id(created: &Value) -> String {
    assert_eq!(created["result"]["resultType"], "task", "{created}");
    assert_eq!(created["result"]["status"], "working", "{created}");
    created["result"]["taskId"].as_str().unwrap().to_owned()
}

/// Between two requests of a test that waits for a change.
const POLL_PAUSE: Duration = Duration::from_millis(20);

/// Asks for a task until it is in this state.
pub(super) async fn until(url: &str, id: &str, status: &str) -> Value {
    let polling = async {
        loop {
            let task = about(url, "ada", "tasks/get", id, json!({})).await["result"].take();
            if task["status"] == status {
                return task;
            }
            assert!(
                !["completed", "failed", "cancelled"].contains(&task["status"].as_str().unwrap()),
                "{task}"
            );
            tokio::time::sleep(POLL_PAUSE).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), polling).await.unwrap()
}

pub(super) fn text_of(task: &Value) -> &str {
    task["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{task}"))
}

/// Returns the id of the run of the only task, and what it waits for, once its driver has let go of it.
pub(super) async fn only_wait(agent: &Agent) -> (String, Wait) {
    let looking = async {
        loop {
            if let Some(stored) = stored_runs(agent).await.pop()
                && stored.status == RunStatus::Waiting
            {
                return (stored.run.id().to_string(), stored.run.waits().remove(0));
            }
            tokio::time::sleep(POLL_PAUSE).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), looking).await.unwrap()
}

#[tool("Says who asks")]
fn whoami(#[inject] principal: &Principal) -> String {
    format!("{} {}", principal.user(), principal.has_scope("money"))
}

#[tool("Says who asks, once that is approved", needs_approval)]
fn reveal(#[inject] principal: &Principal) -> String {
    format!("{} {}", principal.user(), principal.has_scope("money"))
}

struct ByHeader;

impl Authorize for ByHeader {
    fn authorize<'a>(&'a self, credentials: Credentials<'a>) -> AuthorizeFuture<'a> {
        let user = credentials.headers()["x-user"].to_str().unwrap().to_owned();
        Box::pin(async move { Ok(Principal::new(user, ["money"])) })
    }
}

/// The task goes on without the request that began it: another tool that needs its sender does not stop it, and the sender has no scopes.
#[tokio::test]
async fn a_task_of_a_protected_server_goes_on_without_its_request() {
    let (store, done) = (Arc::new(InMemoryStore::new()), Done::default());
    let resource = ProtectedResource::new("https://tools.example/mcp");
    let resource = resource.authorization_server("https://login.example");
    let server = Server::new(tools![pay, whoami, reveal])
        .protect(resource, ByHeader)
        .context(ToolContext::new().with(done.clone()))
        .decider(|_: &Wait| Decision::defer())
        .tasks(store);
    let agent = server.task_agent().unwrap();
    let server = spawn(server).await;
    for (tool, arguments, expected) in
        [("pay", json!({ "cents": 5 }), "paid 5"), ("reveal", json!({}), "ada false")]
    {
        let id = task_id(&call(&server.url(), tool, arguments, json!({})).await);
        let (run, wait) = only_wait(&agent).await;
        let decided = agent.decide(&run, &wait.id, Decision::approve()).await.unwrap();
        decided.resume().unwrap().await.unwrap();
        assert_eq!(text_of(&until(&server.url(), &id, "completed").await), expected);
    }
    assert_eq!(done.take(), ["ada pays 5"]);
    let long = "9".repeat(100_000);
    let refused = call(&server.url(), "pay", json!({ "cents": 5, "why": long }), json!({})).await;
    assert!(refused.to_string().contains("too long to be stored"), "{refused}");
    server.stop().await.unwrap();
}

/// A person of the service decides, at another process that has the store. The host is never asked, and learns nothing about the
/// tasks of others.
#[tokio::test]
async fn a_call_that_needs_approval_waits_for_a_person_of_the_service() {
    let (store, done) = (Arc::new(InMemoryStore::new()), Done::default());
    let (first, other) = (server(&store, &done), server(&store, &done));
    let agent = other.task_agent().unwrap();
    let (first, other) = (spawn(first).await, spawn(other).await);
    let id = task_id(&call(&first.url(), "pay", json!({ "cents": 5 }), json!({})).await);
    let (run, wait) = only_wait(&agent).await;
    let task = about(&other.url(), "ada", "tasks/get", &id, json!({})).await["result"].take();
    assert_eq!(task["status"], "working");
    assert_eq!(task["statusMessage"], "a person of this service decides about it");
    assert!(task["inputRequests"].is_null() && task["ttlMs"].as_u64().unwrap() >= 24 * 3_600_000, "{task}");
    // What the host sends is no decision, and another user has no such task.
    let accepted = json!({ "inputResponses": { (wait.id.as_str()): { "action": "accept", "content": {} } } });
    let answered = about(&first.url(), "ada", "tasks/update", &id, accepted).await;
    assert_eq!(answered["result"]["resultType"], "complete", "{answered}");
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let more = json!({ "inputResponses": {} });
        let foreign = about(&first.url(), "eve", method, &id, more.clone()).await;
        let invented = about(&first.url(), "ada", method, "0-17", more).await;
        assert_eq!(foreign["error"]["code"], -32602, "{foreign}");
        assert_eq!(foreign["error"], invented["error"]);
    }
    assert_eq!(done.take(), [""; 0]);

    let decided = agent.decide(&run, &wait.id, Decision::approve().by("grace")).await.unwrap();
    decided.resume().unwrap().await.unwrap();
    for url in [first.url(), other.url()] {
        assert_eq!(text_of(&until(&url, &id, "completed").await), "paid 5");
    }
    assert_eq!(done.take(), ["ada pays 5"]);
}

/// A host that does not follow tasks reads why nothing was done.
#[tokio::test]
async fn other_hosts_read_that_a_person_decides() {
    let (store, done) = (Arc::new(InMemoryStore::new()), Done::default());
    let running = spawn(server(&store, &done)).await;
    let params = json!({ "name": "pay", "arguments": { "cents": 5 } });
    let denied = send(&running.url(), "ada", "tools/call", params, json!({})).await;
    let expected =
        "the call was denied: a person of this service has to approve it, and this host cannot wait for that";
    assert_eq!(output(&denied), expected);
    let params = json!({ "taskId": "0-17" });
    let refused = send(&running.url(), "ada", "tasks/get", params, json!({})).await;
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
    assert_eq!(done.take(), [""; 0]);
}

/// What no host may be asked, a person of the service answers. The call keeps its key, and what it has recorded and asked the host before.
#[tokio::test]
async fn a_question_that_no_host_is_asked_waits_for_a_person_of_the_service() {
    let (store, done) = (Arc::new(InMemoryStore::new()), Done::default());
    let server = server(&store, &done);
    let agent = server.task_agent().unwrap();
    let running = spawn(server).await;
    let required = call(&running.url(), "book", json!({}), json!({})).await["result"].take();
    let key = required["inputRequests"].as_object().unwrap().keys().next().unwrap();
    let answers = json!({
        "requestState": required["requestState"],
        "inputResponses": { key: { "action": "accept", "content": { "answer": "12C" } } },
    });
    let created = call(&running.url(), "book", json!({}), answers).await;
    assert!(created["result"]["requestState"].is_null(), "{created}");
    let id = task_id(&created);
    let (run, wait) = only_wait(&agent).await;
    let task = about(&running.url(), "ada", "tasks/get", &id, json!({})).await["result"].take();
    assert!(task["status"] == "working" && task["inputRequests"].is_null(), "{task}");
    let guess = json!({ "inputResponses": { (wait.id.as_str()): { "action": "decline" } } });
    about(&running.url(), "ada", "tasks/update", &id, guess).await;
    let decided = agent.decide(&run, &wait.id, Decision::answer("X1")).await.unwrap();
    decided.resume().unwrap().await.unwrap();
    assert_eq!(text_of(&until(&running.url(), &id, "completed").await), "booked 12C as 17 with X1");
    let keys = done.take();
    assert!(keys.len() == 3 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

/// Questions of a task are answered one by one, by the keys that they keep.
#[tokio::test]
async fn a_task_asks_the_user_of_the_host() {
    let (store, done) = (Arc::new(InMemoryStore::new()), Done::default());
    let running = spawn(server(&store, &done)).await;
    let id = task_id(&call(&running.url(), "register", json!({}), json!({})).await);
    let task = until(&running.url(), &id, "input_required").await;
    let requests = task["inputRequests"].as_object().unwrap();
    assert_eq!(requests.len(), 2);
    for (key, request) in requests {
        let answer = match request["params"]["message"].as_str().unwrap() {
            "What is your name?" => json!("Ada"),
            _ => json!(36),
        };
        // A host that declares no form is not asked.
        let unable = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
        let seen = send(&running.url(), "ada", "tasks/get", json!({ "taskId": id }), unable).await;
        assert_eq!(seen["result"]["status"], "working", "{seen}");
        let open = until(&running.url(), &id, "input_required").await;
        assert!(open["inputRequests"][key].is_object(), "{open}");
        let answers = json!({ "inputResponses": {
            key: { "action": "accept", "content": { "answer": answer } },
            "other": { "action": "accept", "content": {} },
        } });
        let answered = about(&running.url(), "ada", "tasks/update", &id, answers).await;
        assert_eq!(answered["result"], json!({ "resultType": "complete" }), "{answered}");
    }
    assert_eq!(text_of(&until(&running.url(), &id, "completed").await), "Ada is 36");
}

#[tokio::test]
async fn a_cancelled_task_cancels_its_call() {
    let (store, done) = (Arc::new(InMemoryStore::new()), Done::default());
    let running = spawn(server(&store, &done)).await;
    let id = task_id(&call(&running.url(), "work", json!({}), json!({})).await);
    for _ in 0..2 {
        let cancelled = about(&running.url(), "ada", "tasks/cancel", &id, json!({})).await;
        assert_eq!(cancelled["result"], json!({ "resultType": "complete" }), "{cancelled}");
        until(&running.url(), &id, "cancelled").await;
    }
    done.cancelled.notified().await;
}

#[tokio::test]
async fn a_task_that_has_expired_is_unknown() {
    let (store, done) = (Arc::new(InMemoryStore::new()), Done::default());
    let server = server(&store, &done).task_lifetime(Duration::ZERO);
    let running = spawn(server).await;
    let id = task_id(&call(&running.url(), "work", json!({}), json!({})).await);
    about(&running.url(), "ada", "tasks/cancel", &id, json!({})).await;
    let polling = async {
        loop {
            let task = about(&running.url(), "ada", "tasks/get", &id, json!({})).await;
            if task["error"]["code"] == -32602 {
                break;
            }
            tokio::time::sleep(POLL_PAUSE).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), polling).await.unwrap();
}

/// The client asks for the result until the person at the server has decided.
#[tokio::test]
async fn a_run_of_the_client_waits_for_a_task() {
    let (store, done) = (Arc::new(InMemoryStore::new()), Done::default());
    let server = server(&store, &done).user(|_| Some(RunUser::new("ada")));
    is_paid_by_ada(server, &done).await;
}

/// As over stdio, where the host is the user.
#[tokio::test]
async fn the_user_in_the_context_of_a_server_is_that_of_its_tasks() {
    let done = Done::default();
    let server = Server::new(tools![pay]).name("desk").decider(|_: &Wait| Decision::defer());
    let server = server.context(ToolContext::new().with(done.clone()).with(RunUser::new("ada")));
    is_paid_by_ada(server.tasks(InMemoryStore::new()), &done).await;
}

async fn is_paid_by_ada(server: Server, done: &Done) {
    let tasks = server.task_agent().unwrap();
    let running = spawn(server).await;
    let client = McpServer::http(running.url()).name("desk").trusted();
    let model = ScriptedModel::new().calls("pay", r#"{"cents": 700}"#).says("Paid.");
    let agent = Agent::builder(model).tool_provider(client.connect().await.unwrap()).build().unwrap();
    let asking = tokio::spawn(agent.ask("Pay the bill").into_future());
    let (id, wait) = only_wait(&tasks).await;
    let decided = tasks.decide(&id, &wait.id, Decision::approve()).await.unwrap();
    decided.resume().unwrap().await.unwrap();
    let answer = asking.await.unwrap().unwrap();
    assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "paid 700");
    assert_eq!(done.take(), ["ada pays 700"]);
}

#[test]
fn mistakes_are_reported_before_anything_is_served() {
    let served = Server::new(tools![work]).context(ToolContext::new().with(Done::default()));
    let error = served.task_agent().unwrap_err();
    assert_eq!(error.kind(), ServerErrorKind::Tasks);
    assert_eq!(error.to_string(), "the server has no tasks; add `tasks` with a store");
    let error = served.long_call("work").into_service().unwrap_err();
    assert_eq!(error.to_string(), "the server has no tasks; add `tasks` with a store");
    let served = Server::new(tools![]).tasks(InMemoryStore::new()).long_call("walk");
    let error = served.into_service().unwrap_err();
    let expected = "the long call `walk` is of an unknown tool; use the name of a tool of the server";
    assert_eq!(error.to_string(), expected);
}
