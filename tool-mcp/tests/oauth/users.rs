//! Users of one program, of whom each has a connection and a login of their own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::{HeaderMap, Method, Response};
use serde_json::{Value, json};
use tool_core::engine::AgentExt;
use tool_core::model::RunUser;
use tool_core::run::{Decision, Run, RunErrorKind};
use tool_core::store::StoreFuture;
use tool_core::testing::ScriptedModel;
use tool_core::tool::{Progress, ToolExecution, WaitId};
use tool_core::{Agent, Answer, CancellationToken, RunError, ToolCall, ToolContext, ToolSet, tool, tools};
use tool_mcp::oauth::{
    Credential, CredentialKey, CredentialLock, CredentialStore, InMemoryCredentials, Login, OAuth,
};
use tool_mcp::testing::OAuthServer;
use tool_mcp::{McpErrorKind, McpServer, McpUserTools};

use super::support::{ROUTE, fake, finish, logged_in, parameter, willing_user};

/// A server that offers each user something else.
#[derive(Default)]
struct Own {
    /// The sessions and their users.
    sessions: Mutex<HashMap<String, String>>,
    /// Requests in the session of another user.
    mixed: Mutex<Vec<String>>,
}

impl Own {
    fn respond(&self, method: &Method, headers: &HeaderMap, body: &str) -> Response<Body> {
        let header = |name| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let user =
            header("authorization").map_or("nobody".to_owned(), |token| token["Bearer ".len()..].to_owned());
        let mut sessions = self.sessions.lock().unwrap();
        if let Some(session) = header("mcp-session-id")
            && sessions.get(&session) != Some(&user)
        {
            self.mixed.lock().unwrap().push(body.to_owned());
        }
        let message: Value = serde_json::from_str(body).unwrap_or_default();
        let schema = json!({ "type": "object" });
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                let session = format!("session {}", sessions.len());
                sessions.insert(session, user);
                json!({
                    "protocolVersion": "2025-06-18", "serverInfo": { "name": "own", "version": "1" },
                    "capabilities": { "tools": {}, "resources": {} },
                })
            }
            "tools/list" => {
                json!({ "tools": [{ "name": format!("tool_of_{user}"), "inputSchema": schema }] })
            }
            "resources/list" => {
                json!({ "resources": [{ "uri": format!("note://{user}"), "name": "notes" }] })
            }
            "resources/templates/list" => json!({ "resourceTemplates": [] }),
            "tools/call" => json!({ "content": [{ "type": "text", "text": user }] }),
            _ => Value::Null,
        };
        let status = match (method, result.is_null()) {
            (&Method::GET, _) => 405,
            (_, true) => 202,
            (_, false) => 200,
        };
        let response = Response::builder().status(status).header("content-type", "application/json");
        let response = match message["method"] == "initialize" {
            true => response.header("mcp-session-id", format!("session {}", sessions.len() - 1)),
            false => response,
        };
        let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string();
        response.body(Body::from(body)).unwrap()
    }
}

async fn own() -> (McpUserTools, Arc<Own>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let own = Arc::new(Own::default());
    let serving = Arc::clone(&own);
    let respond = move |method: Method, headers: HeaderMap, body: String| {
        std::future::ready(serving.respond(&method, &headers, &body))
    };
    let router = axum::Router::new().route("/mcp", axum::routing::any(respond));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let server = McpServer::http(url).name("own").resources().trusted().per_user();
    (server.credentials(|server, user| server.bearer_token(user.to_string())), own)
}

async fn call(set: &ToolSet, name: &str, user: &str) -> String {
    let context = ToolContext::new().with(RunUser::from(user));
    match set.call(&ToolCall::new("call_1", name, "{}"), &context).await {
        Ok(output) => output.to_string(),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn users_see_nothing_of_each_other() {
    let (pool, own) = own().await;
    let mut sets = Vec::new();
    for user in ["ada", "grace", ""] {
        let set = pool.tools(Some(&user.into())).await.unwrap();
        let shown = if user.is_empty() { "nobody" } else { user };
        let tool = format!("tool_of_{shown}");
        let names: Vec<_> = set.definitions().iter().map(|tool| tool.name().to_owned()).collect();
        assert_eq!(names, ["list_resources", "read_resource", &tool]);
        assert_eq!(call(&set, &tool, user).await, shown);
        assert_eq!(call(&set, "list_resources", user).await, format!("note://{shown}: notes. \n"));
        sets.push(set);
    }
    // The same places again, and those of runs without a user.
    assert_eq!(call(&pool.tools(Some(&"ada".into())).await.unwrap(), "tool_of_ada", "ada").await, "ada");
    pool.tools(None).await.unwrap();
    let mut users: Vec<_> = own.sessions.lock().unwrap().values().cloned().collect();
    users.sort_unstable();
    assert_eq!(users, ["ada", "grace", "nobody"]);
    assert_eq!(*own.mixed.lock().unwrap(), [""; 0]);

    let other =
        "the MCP server `own` is connected for another user than that of the run; use `McpServer::per_user`";
    for tool in ["tool_of_ada", "list_resources"] {
        let error = call(&sets[0], tool, "grace").await;
        assert!(error.ends_with(other), "{error}");
    }
}

#[tokio::test]
async fn a_run_has_the_tools_of_its_user() {
    let (pool, _) = own().await;
    let pool = pool.map_tools(|tools| tools.prefix("own_"));
    for user in ["ada", "grace"] {
        let model = ScriptedModel::new().calls(format!("own_tool_of_{user}"), "{}").says("Done.");
        let agent = Agent::builder(model).tool_provider(pool.clone()).build().unwrap();
        let answer = agent.ask("Call it").user(user).await.unwrap();
        let output = answer.tool_executions()[0].output().map(ToString::to_string);
        assert_eq!(output.as_deref(), Some(user));
    }
}

#[tokio::test]
async fn a_login_serves_only_its_user() {
    let fake = fake().await;
    let oauth = OAuth::new(Login::route(ROUTE)).store(InMemoryCredentials::default());
    let pool = McpServer::http(fake.url()).oauth(oauth).trusted().per_user();
    finish(&fake, &pool.server("ada")).await.unwrap();
    let set = pool.tools(Some(&"ada".into())).await.unwrap();
    assert_eq!(call(&set, "read", "ada").await, "read: read");
    for user in [Some(&"grace".into()), None] {
        assert_eq!(pool.tools(user).await.unwrap_err().kind(), McpErrorKind::LoginRequired);
    }
    // After the login, the run goes on.
    finish(&fake, &pool.server("grace")).await.unwrap();
    assert_eq!(pool.tools(Some(&"grace".into())).await.unwrap().len(), 2);

    // Nor does a connection that the program has made itself.
    let fake = super::support::fake().await;
    let tools = logged_in(&fake).await.0.connect().await.unwrap();
    let agent = |model| Agent::builder(model).tool_provider(tools.clone()).build().unwrap();
    let answer = agent(ScriptedModel::new().says("Done.")).ask("Read").user("ada").await.unwrap();
    assert_eq!(answer.text(), "Done.");
    let error = agent(ScriptedModel::new().says("Done.")).ask("Read").user("grace").await.unwrap_err();
    let expected = "is connected for another user than that of the run; use `McpServer::per_user`";
    assert!(error.to_string().contains(expected), "{error}");
}

/// A store that records which logins were started.
#[derive(Clone, Default)]
struct Started {
    store: InMemoryCredentials,
    keys: Arc<Mutex<Vec<String>>>,
}

impl Started {
    fn count(&self) -> usize {
        self.keys.lock().unwrap().len()
    }
}

impl CredentialStore for Started {
    fn load<'a>(&'a self, key: &'a CredentialKey) -> StoreFuture<'a, Option<Credential>> {
        self.store.load(key)
    }

    fn swap<'a>(
        &'a self,
        key: &'a CredentialKey,
        expected: Option<&'a str>,
        new: Option<&'a Credential>,
    ) -> StoreFuture<'a, bool> {
        // Only these keys have the digest of a `state`.
        if new.is_some() && !key.to_string().ends_with(",null]") {
            self.keys.lock().unwrap().push(key.to_string());
        }
        self.store.swap(key, expected, new)
    }

    fn lock<'a>(&'a self, key: &'a CredentialKey) -> StoreFuture<'a, CredentialLock> {
        self.store.lock(key)
    }
}

/// The page of the program where logins start.
const PAGE: &str = "https://app.example/connect/tickets";

/// Returns the pool of a process, of which all have the store.
fn process(fake: &OAuthServer, store: &Started) -> McpUserTools {
    let oauth = OAuth::new(Login::route(ROUTE).page(PAGE)).store(store.clone());
    McpServer::http(fake.url()).name("tickets").oauth(oauth).trusted().per_user()
}

/// Returns the run that waits for its user to log in, as it is stored.
fn waiting(error: &RunError, fake: &OAuthServer) -> (Run, WaitId) {
    assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
    let stored = serde_json::to_string(error.run()).unwrap();
    // A reader of the stored run cannot take part in the login.
    for text in ["state=", "authorize", &fake.issuer()] {
        assert!(!stored.contains(text), "{stored}");
    }
    let run: Run = serde_json::from_str(&stored).unwrap();
    let wait = run.waits().pop().unwrap();
    let expected = format!("The server `tickets` needs you to log in:\n{PAGE}\nHave you logged in?");
    assert_eq!(wait.question().unwrap().text(), expected);
    (run, wait.id)
}

/// Opens the page in the session of the user, in another process, and logs in. Returns the scopes that were requested.
async fn open_page(fake: &OAuthServer, store: &Started) -> Option<String> {
    let url = process(fake, store).server("ada").start_login().await.unwrap().unwrap();
    process(fake, store).server("ada").finish_login(&fake.approve(&url).await.unwrap()).await.unwrap();
    parameter(&url, "scope")
}

fn outputs(answer: &Answer) -> Vec<String> {
    let output = |execution: &ToolExecution| match execution.outcome() {
        Ok(output) => output.to_string(),
        Err(error) => error.to_string(),
    };
    answer.tool_executions().iter().map(output).collect()
}

#[tokio::test]
async fn a_run_waits_for_the_login_that_a_call_needs() {
    let (fake, store) = (fake().await, Started::default());
    finish(&fake, &process(&fake, &store).server("ada")).await.unwrap();
    let agent = |model: ScriptedModel| {
        let pool = process(&fake, &store);
        Agent::builder(model).tool_provider(pool).build().unwrap()
    };
    // Calls in parallel start no login.
    let model = ScriptedModel::new().calls_all([("write", "{}"), ("write", "{}")]);
    let error = agent(model).ask("Write").user("ada").await.unwrap_err();
    assert_eq!(waiting(&error, &fake).0.waits().len(), 2);
    let error = agent(ScriptedModel::new().calls("write", "{}")).ask("Write").user("ada").await.unwrap_err();
    let (run, wait) = waiting(&error, &fake);

    // Who declines is not asked again, and the model reads it.
    let mut declined = run.clone();
    declined.resolve(&wait, Decision::answer(json!(false))).unwrap();
    let answer = agent(ScriptedModel::new().says("Done.")).resume(declined).await.unwrap();
    let expected = "the MCP server `tickets` requires a login, and the user has not logged in";
    assert!(outputs(&answer)[0].ends_with(expected), "{:?}", outputs(&answer));

    // Who has not logged in is asked again.
    let mut early = run.clone();
    early.resolve(&wait, Decision::answer(json!(true))).unwrap();
    let error = agent(ScriptedModel::new()).resume(early).await.unwrap_err();
    let (mut run, wait) = waiting(&error, &fake);
    assert_eq!(store.count(), 1);

    assert_eq!(open_page(&fake, &store).await.as_deref(), Some("read write"));
    run.resolve(&wait, Decision::answer(json!(true))).unwrap();
    let answer = agent(ScriptedModel::new().says("Done.")).resume(run).await.unwrap();
    assert_eq!(outputs(&answer), ["write: read write"]);
}

/// Returns the result that states how a task is, and has its result once there is one.
fn task(status: &str, result: Value) -> Value {
    json!({
        "resultType": if result.is_null() { "task" } else { "complete" }, "taskId": "t-1", "status": status,
        "createdAt": "2026-11-28T00:00:00Z", "lastUpdatedAt": "2026-11-28T00:00:00Z", "ttlMs": null,
        "result": result,
    })
}

/// Makes a server go on with a task for each call of `read`.
fn serve_tasks(fake: &OAuthServer) {
    let listed = json!({
        "resultType": "complete", "ttlMs": 3_600_000, "cacheScope": "private",
        "tools": [{ "name": "read", "inputSchema": { "type": "object" } }],
    });
    let discovered = json!({
        "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
        "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} },
    });
    fake.set_result("server/discover", discovered);
    fake.set_result("tools/list", listed);
    fake.set_result("tools/call", task("working", Value::Null));
    fake.set_result("tasks/get", task("working", json!({})));
}

/// The task of a call goes on at the server while its user logs in.
#[tokio::test]
async fn a_run_waits_for_the_login_that_a_task_needs() {
    let (fake, store) = (fake().await, Started::default());
    serve_tasks(&fake);
    let pool = process(&fake, &store);
    finish(&fake, &pool.server("ada")).await.unwrap();
    let agent = |model| Agent::builder(model).tool_provider(pool.clone()).build().unwrap();
    let first = agent(ScriptedModel::new().calls("read", "{}"));
    let mut driver = first.ask("Read").user("ada").start();
    driver.advance().await.unwrap();
    driver.advance().await.unwrap();
    let mut run = driver.into_run();
    for _ in 0..2 {
        fake.end_logins();
        run.tick(run.waits()[0].deadline.unwrap());
        let error = agent(ScriptedModel::new()).resume(run).await.unwrap_err();
        let (asked, wait) = waiting(&error, &fake);

        let mut declined = asked.clone();
        declined.resolve(&wait, Decision::answer(false)).unwrap();
        let answer = agent(ScriptedModel::new().says("Done.")).resume(declined).await.unwrap();
        let expected = "the user has not logged in; the call may or may not have taken effect";
        assert!(outputs(&answer)[0].contains(expected), "{:?}", outputs(&answer));

        open_page(&fake, &store).await;
        run = asked;
        run.resolve(&wait, Decision::answer(true)).unwrap();
        let mut driver = agent(ScriptedModel::new()).resume(run).start();
        driver.advance().await.unwrap();
        run = driver.into_run();
        assert!(run.waits()[0].is_until());
    }
    fake.set_result(
        "tasks/get",
        task("completed", json!({ "content": [{ "type": "text", "text": "read" }] })),
    );
    run.tick(run.waits()[0].deadline.unwrap());
    let answer = agent(ScriptedModel::new().says("Done.")).resume(run).await.unwrap();
    assert_eq!(outputs(&answer), ["read"]);
    let requests = fake.requests("/mcp");
    assert_eq!(requests.iter().filter(|request| request.contains("tools/call")).count(), 1);
}

/// A user who refuses the login that a poll needs is not asked again at the next one.
#[tokio::test]
async fn a_refused_login_ends_the_call_of_a_task() {
    let fake = fake().await;
    serve_tasks(&fake);
    let asked = Arc::new(AtomicUsize::new(0));
    let (user, count) = (Arc::clone(&fake), Arc::clone(&asked));
    let login = Login::paste("http://127.0.0.1/callback", move |login| {
        let (user, is_first) = (Arc::clone(&user), count.fetch_add(1, Ordering::SeqCst) == 0);
        async move {
            match is_first {
                true => user.approve(&login.url).await,
                false => Err(std::io::Error::other("closed")),
            }
        }
    });
    let server = McpServer::http(fake.url()).name("tickets").oauth(OAuth::new(login)).trusted();
    let connected = server.connect().await.unwrap();
    let model = ScriptedModel::new().calls("read", "{}").says("Done.");
    let agent = Agent::builder(model).tools(connected.tools().await.unwrap()).build().unwrap();
    let mut driver = agent.ask("Read").start();
    driver.advance().await.unwrap();
    driver.advance().await.unwrap();
    let mut run = driver.into_run();
    fake.end_logins();
    run.tick(run.waits()[0].deadline.unwrap());
    let answer = agent.resume(run).await.unwrap();
    let expected = "no redirect was given: closed; the call may or may not have taken effect";
    assert!(outputs(&answer)[0].contains(expected), "{:?}", outputs(&answer));
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn open_calls_survive_the_end_of_a_login() {
    let (fake, store) = (fake().await, Started::default());
    finish(&fake, &process(&fake, &store).server("ada")).await.unwrap();
    let server_with = |approved: &[&str]| {
        let oauth = OAuth::new(Login::route(ROUTE).page(PAGE)).store(store.clone());
        McpServer::http(fake.url()).name("tickets").oauth(oauth).approved(approved.to_vec()).per_user()
    };
    let server = || server_with(&["read"]);
    #[tool("Looks outside", needs_approval)]
    fn look() -> String {
        "rain".into()
    }
    let agent = |model: ScriptedModel, pool| {
        Agent::builder(model).tools(tools![look]).tool_provider(pool).build().unwrap()
    };
    let error =
        agent(ScriptedModel::new().calls("read", "{}"), server_with(&[])).ask("Read").user("ada").await;
    let mut approved = error.unwrap_err().run().clone();
    let wait = approved.waits().pop().unwrap();
    approved.resolve(&wait.id, Decision::approve()).unwrap();

    // The connection outlives the login.
    let connected = server();
    connected.tools(Some(&"ada".into())).await.unwrap();
    fake.end_logins();
    let error = agent(ScriptedModel::new().calls("read", "{}"), connected).ask("Read").user("ada").await;
    let (run, wait) = waiting(&error.unwrap_err(), &fake);
    let answered = |answer| {
        let mut run = run.clone();
        run.resolve(&wait, Decision::answer(json!(answer))).unwrap();
        run
    };

    let mut runs = Vec::new();
    for (run, is_approved) in [(approved, false), (answered(false), true), (answered(true), true)] {
        let server = || server_with(if is_approved { &["read"] } else { &[] });
        let error = agent(ScriptedModel::new(), server()).resume(run).await.unwrap_err();
        // The tool of the call is unknown without a login, so the question stands at no call.
        let (run, wait) = waiting(&error, &fake);
        assert_eq!(run.waits().iter().map(|wait| &*wait.path).collect::<Vec<_>>(), [""]);
        let decided = |answer| {
            let mut run = run.clone();
            run.resolve(&wait, Decision::answer(json!(answer))).unwrap();
            run
        };
        let error = agent(ScriptedModel::new(), server()).resume(decided(false)).await.unwrap_err();
        assert!(matches!(error.kind(), RunErrorKind::Tools { .. }), "{error}");
        assert!(error.to_string().contains("requires a login"), "{error}");
        runs.push((error.run().clone(), server()));
        runs.push((decided(true), server()));
    }
    // Calls of other tools need no login.
    let error = agent(ScriptedModel::new(), server()).ask("Look").user("ada").await.unwrap_err();
    let (mut other, wait) = waiting(&error, &fake);
    other.resolve(&wait, Decision::decline()).unwrap();
    let model = ScriptedModel::new().calls("look", "{}");
    let mut other = agent(model, server()).resume(other).await.unwrap_err().run().clone();
    let wait = other.waits().pop().unwrap();
    other.resolve(&wait.id, Decision::approve()).unwrap();
    let answer = agent(ScriptedModel::new().says("Done."), server()).resume(other).await.unwrap();
    assert_eq!(outputs(&answer), ["rain"]);

    open_page(&fake, &store).await;
    let declined = "the MCP server `tickets` requires a login, and the user has not logged in";
    for ((run, pool), expected) in
        runs.into_iter().zip(["read: read", declined, "read: read"].into_iter().flat_map(|one| [one; 2]))
    {
        let outcome = agent(ScriptedModel::new().says("Done."), pool).resume(run).await;
        match outcome {
            Ok(answer) => assert!(outputs(&answer)[0].ends_with(expected), "{:?}", outputs(&answer)),
            Err(error) => panic!("{expected}: {error}"),
        }
    }
}

#[tokio::test]
async fn a_call_in_another_process_is_denied_after_the_end_of_a_login() {
    let (fake, store) = (fake().await, Started::default());
    finish(&fake, &process(&fake, &store).server("ada")).await.unwrap();
    let agent = |model| Agent::builder(model).tool_provider(process(&fake, &store)).build().unwrap();
    let mut driver = agent(ScriptedModel::new().calls("read", "{}")).ask("Read").user("ada").start();
    driver.advance().await.unwrap();
    let definition = driver.tools().definitions().iter().find(|one| one.name() == "read").unwrap().hash();
    let mut request = driver.into_run().request_call("call_1_0").unwrap();
    request.definition = Some(definition);
    for (has_ended, expected) in [(false, "read: read"), (true, "this tool is no longer available here")] {
        if has_ended {
            fake.end_logins();
        }
        let (context, never) = (ToolContext::new(), CancellationToken::new());
        let other = agent(ScriptedModel::new());
        let execution =
            other.execute_request(&[], request.clone(), &context, &never, Progress::default()).await;
        let outcome = execution.outcome().map_or_else(ToString::to_string, ToString::to_string);
        assert!(outcome.ends_with(expected), "{outcome}");
    }
}

#[tokio::test]
async fn a_run_waits_for_the_login_that_its_tools_need() {
    let (fake, store) = (fake().await, Started::default());
    let agent = |model: ScriptedModel| {
        let pool = process(&fake, &store);
        Agent::builder(model).tool_provider(pool).build().unwrap()
    };
    // The model is not asked before.
    let error = agent(ScriptedModel::new()).ask("Read").user("ada").await.unwrap_err();
    let (run, wait) = waiting(&error, &fake);
    assert_eq!((&*run.waits()[0].path, &*run.waits()[0].tool, run.turns()), ("", "tickets", 0));
    assert_eq!(store.count(), 0);
    let answered = |run: &Run, wait: &WaitId, answer: bool| {
        let mut run = run.clone();
        run.resolve(wait, Decision::answer(answer)).unwrap();
        run
    };

    // Who declines is not asked again, unless the model asks.
    let declined = answered(&run, &wait, false);
    let answer = agent(ScriptedModel::new().says("Hello.")).resume(declined.clone()).await.unwrap();
    assert_eq!(answer.text(), "Hello.");
    let model = ScriptedModel::new().calls("log_in_to_tickets", "{}");
    let error = agent(model).resume(declined).await.unwrap_err();
    let (asked, login) = waiting(&error, &fake);
    let model = || ScriptedModel::new().calls("read", "{}").says("Done.");
    let answer = agent(model()).resume(answered(&asked, &login, false)).await.unwrap();
    let expected = "the MCP server `tickets` requires a login, and the user has not logged in";
    assert!(outputs(&answer)[0].ends_with(expected), "{:?}", outputs(&answer));

    // Who has not logged in is asked twice more.
    let (mut early, mut open) = (run.clone(), wait.clone());
    for _ in 0..2 {
        let error = agent(ScriptedModel::new()).resume(answered(&early, &open, true)).await.unwrap_err();
        (early, open) = waiting(&error, &fake);
    }
    agent(ScriptedModel::new().says("Hello.")).resume(answered(&early, &open, true)).await.unwrap();
    assert_eq!(store.count(), 0);

    open_page(&fake, &store).await;
    let answer = agent(model()).resume(answered(&run, &wait, true)).await.unwrap();
    assert_eq!(outputs(&answer), ["read: read"]);
    let answer = agent(model()).resume(answered(&asked, &login, true)).await.unwrap();
    let logged_in = "The user has logged in. If that is so, the tools of the server are there from now on.";
    assert_eq!(outputs(&answer), [logged_in, "read: read"]);

    // Without a user, there is nobody to ask.
    let error = agent(ScriptedModel::new()).ask("Read").await.unwrap_err();
    assert!(error.to_string().contains("requires a login: nobody has logged in"), "{error}");
}

#[tokio::test]
async fn a_run_waits_only_for_logins_that_start_at_a_page() {
    let (fake, store) = (fake().await, InMemoryCredentials::default());
    let pool = |login| {
        let oauth = OAuth::new(login).store(store.clone());
        McpServer::http(fake.url()).name("tickets").oauth(oauth).trusted().per_user()
    };
    let agent = |model| Agent::builder(model).tool_provider(pool(Login::route(ROUTE))).build().unwrap();
    let expected = "or set `Login::page`, so that runs wait for it";
    let error = agent(ScriptedModel::new()).ask("Read").user("ada").await.unwrap_err();
    assert!(error.to_string().contains(expected), "{error}");
    finish(&fake, &pool(Login::route(ROUTE)).server("ada")).await.unwrap();
    let model = ScriptedModel::new().calls("write", "{}").says("Done.");
    let answer = agent(model).ask("Write").user("ada").await.unwrap();
    assert!(outputs(&answer)[0].ends_with(expected), "{:?}", outputs(&answer));

    for page in
        ["/connect", "http://app.example/connect", "javascript:alert(1)", "https://app.example/\nconnect"]
    {
        let error = pool(Login::route(ROUTE).page(page)).tools(Some(&"ada".into())).await.unwrap_err();
        let expected = "`Login::page` requires an absolute `https` URL, or an `http` one on this machine";
        assert!(
            error.kind() == McpErrorKind::Config && error.to_string().ends_with(expected),
            "{page}: {error}"
        );
    }
    pool(Login::route(ROUTE).page("http://127.0.0.1:8000/connect")).tools(Some(&"ada".into())).await.unwrap();
}

/// Two programs of a user can share a file.
#[tokio::test]
async fn the_login_of_another_client_stays() {
    let (fake, store) = (fake().await, InMemoryCredentials::default());
    let pool = |oauth: OAuth| McpServer::http(fake.url()).name("tickets").oauth(oauth).trusted().per_user();
    let oauth = || OAuth::new(Login::route(ROUTE)).store(store.clone());
    let pools = [pool(oauth()), pool(oauth().client_metadata_url("https://app.example/client.json"))];
    for pool in &pools {
        finish(&fake, &pool.server("ada")).await.unwrap();
    }
    pools[1].log_out("ada").await.unwrap();
    assert_eq!(pools[0].tools(Some(&"ada".into())).await.unwrap().len(), 2);
    assert_eq!(pools[1].tools(Some(&"ada".into())).await.unwrap_err().kind(), McpErrorKind::LoginRequired);
}

#[tokio::test]
async fn who_logs_out_has_no_login_anywhere() {
    for is_revoked in [true, false] {
        let (fake, store) = (fake().await, Started::default());
        if !is_revoked {
            fake.set_metadata("revocation_endpoint", Value::Null);
        }
        let [one, other] = [process(&fake, &store), process(&fake, &store)];
        for user in ["ada", "grace"] {
            finish(&fake, &one.server(user)).await.unwrap();
            one.tools(Some(&user.into())).await.unwrap();
        }
        let connected = other.tools(Some(&"ada".into())).await.unwrap();
        // Where the metadata leads later does not matter.
        fake.set_metadata("revocation_endpoint", json!(format!("{}/stolen", fake.issuer())));
        one.log_out("ada").await.unwrap();
        one.log_out("ada").await.unwrap();
        assert_eq!(
            (fake.requests("/revoke").len(), fake.requests("/stolen").len()),
            (if is_revoked { 2 } else { 0 }, 0)
        );
        for pool in [&one, &process(&fake, &store)] {
            assert_eq!(
                pool.tools(Some(&"ada".into())).await.unwrap_err().kind(),
                McpErrorKind::LoginRequired
            );
        }
        let called = call(&connected, "read", "ada").await;
        assert_eq!(called.contains("requires a login"), is_revoked, "{called}");
        one.tools(Some(&"grace".into())).await.unwrap();
        assert_eq!(process(&fake, &store).tools(Some(&"grace".into())).await.unwrap().len(), 2);
    }
}

#[tokio::test]
async fn a_login_among_the_credentials_is_of_its_user() {
    let (fake, store) = (fake().await, InMemoryCredentials::default());
    let (login, logins) = willing_user(&fake);
    let oauth = OAuth::new(login).store(store);
    let pool =
        McpServer::http(fake.url()).per_user().credentials(move |server, _| server.oauth(oauth.clone()));
    for (user, expected) in [("ada", 1), ("grace", 2), ("ada", 2)] {
        pool.tools(Some(&user.into())).await.unwrap();
        assert_eq!(logins.load(Ordering::SeqCst), expected, "{user}");
    }
}

#[tokio::test]
async fn an_optional_server_offers_the_login() {
    let fake = fake().await;
    let oauth = OAuth::new(Login::route(ROUTE).page(PAGE));
    let pool = McpServer::http(fake.url()).name("tickets").oauth(oauth).trusted().optional().per_user();
    let agent = |model| Agent::builder(model).tool_provider(pool.clone()).build().unwrap();
    let model = ScriptedModel::new().calls("log_in_to_tickets", "{}");
    let error = agent(model).ask("Read").user("ada").await.unwrap_err();
    let (mut run, wait) = waiting(&error, &fake);
    // The connection is tried again at once.
    finish(&fake, &pool.server("ada")).await.unwrap();
    run.resolve(&wait, Decision::answer(true)).unwrap();
    let answer = agent(ScriptedModel::new().calls("read", "{}").says("Done.")).resume(run).await;
    assert_eq!(outputs(&answer.unwrap())[1], "read: read");
    // Without a user, it is a server that is not available.
    agent(ScriptedModel::new().says("Hello.")).ask("Hello").await.unwrap();
}
