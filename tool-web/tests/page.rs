//! The page over HTTP, without a browser.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tool_core::agent::{AgentBuilder, Compaction};
use tool_core::content::Content;
use tool_core::layer::{AnswerVerdict, OutputVerdict, QuestionVerdict, guard, rewrite};
use tool_core::memory::{Budget, InMemoryStore, RunFilter, RunStatus, RunSummary};
use tool_core::model::{ModelOptions, OnUnknownPrice, Prices, RunUser, Usage};
use tool_core::run::{Decision, Run, UserMessage};
use tool_core::store::{
    DriverId, LeaseRequest, LeaseState, PostOutcome, PostedCommand, RunChanges, RunCommand, RunLog,
    RunRevision, RunStore, SaveOutcome, StoreFuture,
};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, Message, RunErrorKind, ToolCall, ToolOutput, tool, tools};
use tool_web::{ResponseBody, Right, RunningServer, Web};
use tower_service::Service;

#[tool("Pays a bill", needs_approval)]
fn pay(cents: u64) -> String {
    format!("paid {cents}")
}

#[tool("Fails", name = "break")]
fn breaks() -> Result<(), &'static str> {
    Err("broken")
}

#[tool("Repeats")]
fn echo(text: String) -> String {
    text
}

#[tool("Reads")]
fn read() -> &'static str {
    "hunter2"
}

/// An agent whose first question pays, with a number that JavaScript cannot represent.
async fn run_ids(store: &impl RunStore) -> Vec<String> {
    store.list_runs(&RunFilter::new()).await.unwrap().into_iter().map(|run| run.id).collect()
}

fn agent(store: impl RunStore + 'static) -> Agent {
    let model = ScriptedModel::new().calls("pay", r#"{"cents": 18446744073709551615}"#).says("Done.");
    Agent::builder(model).tools(tools![pay]).run_store(store).build().unwrap()
}

/// Sends a request and returns the status and the body.
async fn send(server: &RunningServer, head: &str, headers: &str, body: &str) -> (u16, String) {
    send_to(server.address(), head, headers, body).await
}

async fn send_to(address: SocketAddr, head: &str, headers: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let host = if headers.contains("host: ") { "" } else { "host: localhost\r\n" };
    let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
    let length = body.len();
    let request = format!(
        "{head} HTTP/1.1\r\n{host}{kind}{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

/// Returns the events of a run up to one that contains a text.
async fn events_until(server: &RunningServer, run: &str, end: &str) -> String {
    let request = format!(
        "GET /api/runs/{run}/events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n"
    );
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut events = String::new();
    while !events.contains(end) {
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).await.unwrap();
        assert_ne!(count, 0, "{events}");
        events.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
    }
    events
}

async fn get(server: &RunningServer, path: &str) -> Value {
    let (status, body) = send(server, &format!("GET /{path}"), "", "").await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// Long enough for any machine; no test waits for so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until a run has a status.
async fn until(server: &RunningServer, run: &str, status: &str) -> Value {
    let started = Instant::now();
    loop {
        let shown = get(server, &format!("api/runs/{run}")).await;
        if shown["status"] == status {
            return shown;
        }
        assert!(started.elapsed() < PATIENCE, "{shown}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_run_that_waits_is_decided_and_goes_on() {
    let agent = agent(InMemoryStore::new());
    let server = tool_web::serve(agent.clone()).await.unwrap();
    let run = agent.ask("Pay").await.unwrap_err().into_run().id().to_string();
    let list = get(&server, "api/runs").await;
    assert_eq!(list["counts"], json!({ "waiting": 1 }));
    assert_eq!(list["runs"][0]["summary"], json!([r#"pay {"cents": 18446744073709551615}"#]));
    let shown = until(&server, &run, "waiting").await;
    let [wait] = &shown["open"].as_array().unwrap()[..] else { panic!("{shown}") };
    // The text keeps the digits that a number in JavaScript loses.
    assert_eq!(wait["fields"][0]["text"], "18446744073709551615");
    let path = format!("POST /api/runs/{run}/decisions");
    let decide = |body: Value| {
        let (path, server) = (path.clone(), &server);
        async move { send(server, &path, "", &body.to_string()).await }
    };
    let id = &wait["id"];
    let (status, text) = decide(json!({ "wait": "0123", "decision": "approve" })).await;
    assert_eq!((status, &*text), (409, "the run does not wait for this any more; read it again"));
    let (status, _) = decide(json!({ "wait": id, "decision": { "edit": [1] } })).await;
    assert_eq!(status, 400);
    let table = [
        (
            json!("edit"),
            "invalid request: invalid type: unit variant, expected newtype variant at line 1 column 18",
        ),
        (
            json!({ "fork": 1 }),
            "invalid request: unknown variant `fork`, expected one of `approve`, `edit`, `answer`, `deny` at line 1 column 19",
        ),
        (
            json!({ "deny": 1 }),
            "invalid request: invalid type: integer `1`, expected a string at line 1 column 21",
        ),
    ];
    for (decision, expected) in table {
        let body = json!({ "decision": decision, "wait": id });
        assert_eq!(decide(body).await, (400, expected.to_owned()));
    }
    // What does not match the tool is refused with the text that the model would read, and the call waits on.
    let (status, text) = decide(json!({ "wait": id, "decision": { "edit": { "cents": "many" } } })).await;
    let expected = r#"the call cannot be approved with these arguments: invalid arguments: `cents`: expected an integer from 0, got "many""#;
    assert_eq!((status, &*text), (400, expected));
    assert_eq!(&until(&server, &run, "waiting").await["open"][0]["id"], id);
    let (status, text) = decide(json!({ "wait": id, "decision": { "edit": { "cents": 7 } } })).await;
    assert_eq!(status, 200, "{text}");
    let (status, text) = decide(json!({ "wait": id, "decision": "approve" })).await;
    let earlier: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(status, 409);
    assert_eq!((&earlier["kind"], &earlier["by"]), (&json!("approved_with_changes"), &json!("local user")));
    let done = until(&server, &run, "done").await;
    assert_eq!((&done["turns"], &done["open"]), (&json!(2), &json!([])));
    // What has ended is distinguished from what has never been.
    for action in ["POST cancel", "POST resume", "POST end"] {
        let (method, action) = action.split_once(' ').unwrap();
        let ended = send(&server, &format!("{method} /api/runs/{run}/{action}"), "", "").await;
        assert_eq!(ended, (409, "the run has ended".to_owned()));
        let unknown = send(&server, &format!("{method} /api/runs/x/{action}"), "", "").await;
        assert_eq!(unknown, (404, "there is no such run".to_owned()));
    }
    let (status, text) = decide(json!({ "wait": "0123", "decision": "approve" })).await;
    assert_eq!((status, &*text), (409, "the run has ended"));
}

#[tokio::test]
async fn new_arguments_keep_every_digit() {
    let agent = agent(InMemoryStore::new());
    let server = tool_web::serve(agent.clone()).await.unwrap();
    let run = agent.ask("Pay").await.unwrap_err().into_run().id().to_string();
    let wait = until(&server, &run, "waiting").await["open"][0]["id"].clone();
    let body = format!(r#"{{"wait": {wait}, "decision": {{"edit": {{"cents": 18446744073709551614}}}}}}"#);
    let (status, text) = send(&server, &format!("POST /api/runs/{run}/decisions"), "", &body).await;
    assert_eq!(status, 200, "{text}");
    until(&server, &run, "done").await;
    let events = events_until(&server, &run, r#""type":"done""#).await;
    assert!(events.contains(r#""content":"paid 18446744073709551614""#), "{events}");
}

#[tokio::test]
async fn failed_calls_are_counted() {
    let model = ScriptedModel::new().calls("break", "{}").calls("pay", r#"{"cents": 1}"#).says("Sorry.");
    let agent =
        Agent::builder(model).tools(tools![breaks, pay]).run_store(InMemoryStore::new()).build().unwrap();
    let server = tool_web::serve(agent.clone()).await.unwrap();
    // Stored while it waits, and not afterwards.
    let run = agent.ask("Break it").await.unwrap_err().into_run();
    let shown = until(&server, run.id().as_str(), "waiting").await;
    assert_eq!(shown["failed_calls"], 1);
    let mut run = run;
    run.resolve_all(|_| tool_core::run::Decision::deny("no")).unwrap();
    agent.resume(run).await.unwrap();
    let list = get(&server, "api/runs?status=done").await;
    assert_eq!(list["runs"][0]["failed_calls"], 1, "a denied call has not failed");
}

#[tokio::test]
async fn queries_with_mistakes_are_refused() {
    let server = Web::new().spawn("127.0.0.1:0").await.unwrap();
    let table = [
        (
            "status=foo",
            "invalid status: unknown variant `foo`, expected one of `waiting`, `running`, `failed`, `unreadable`, `interrupted`, \
             `expired`, `cancelled`, `done`",
        ),
        ("limit=all", "`limit` must be a number"),
    ];
    for (query, expected) in table {
        let refused = send(&server, &format!("GET /api/runs?{query}"), "", "").await;
        assert_eq!(refused, (400, expected.to_owned()));
    }
    assert_eq!(send(&server, "GET /api/runs?status=done&limit=5&agent=&text=", "", "").await.0, 200);
}

#[tokio::test]
async fn a_nested_page_is_served_with_and_without_a_slash() {
    let web = Web::new();
    let app = axum::Router::new().nest_service("/runs", web.service());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    for (path, script) in [("/runs", "runs/page.js"), ("/runs/", "./page.js")] {
        let (status, body) = send_to(address, &format!("GET {path}"), "", "").await;
        assert_eq!(status, 200);
        assert!(body.contains(&format!(r#"src="{script}""#)), "{body}");
    }
    assert_eq!(send_to(address, "GET /runs/api/runs", "", "").await.0, 200);
}

/// Of two agents on one store, the one that was asked is shown with its run and continues it, in whatever order they were added.
#[tokio::test]
async fn a_run_is_shown_and_driven_as_one_of_the_agent_that_was_asked() {
    let named = [("desk", "notes", [0, 1]), ("desk", "notes", [1, 0])];
    // An agent without a name beside one with a name has its own runs, too.
    let unnamed = [("desk", "", [0, 1]), ("desk", "", [1, 0]), ("", "notes", [0, 1]), ("", "notes", [1, 0])];
    for (desk_name, notes_name, order) in named.into_iter().chain(unnamed) {
        let store = std::sync::Arc::new(InMemoryStore::new());
        let script = || ScriptedModel::new().calls("pay", r#"{"cents": 7}"#).says("Done.");
        let build = |agent: AgentBuilder, name: &str| match name {
            "" => agent.run_store(store.clone()).build().unwrap(),
            name => agent.name(name).run_store(store.clone()).build().unwrap(),
        };
        let desk = build(Agent::builder(script()).tools(tools![pay]), desk_name);
        let notes = build(Agent::builder(ScriptedModel::new().says("There is no such tool.")), notes_name);
        let agents = [desk.clone(), notes];
        let shown_name = json!(if desk_name.is_empty() { "agent" } else { desk_name });
        let web = order.into_iter().fold(Web::new(), |web, index| web.agent(agents[index].clone()));
        let server = web.spawn("127.0.0.1:0").await.unwrap();
        let run = desk.ask("Pay").await.unwrap_err().into_run().id().to_string();
        let list = get(&server, "api/runs").await;
        assert_eq!((list["runs"].as_array().unwrap().len(), &list["runs"][0]["agent"]), (1, &shown_name));
        let shown = until(&server, &run, "waiting").await;
        assert_eq!((&shown["agent"], &shown["open"][0]["tool"]), (&shown_name, &json!("pay")));
        let decision = json!({ "wait": shown["open"][0]["id"], "decision": "approve" }).to_string();
        assert_eq!(send(&server, &format!("POST /api/runs/{run}/decisions"), "", &decision).await.0, 200);
        let done = until(&server, &run, "done").await;
        assert_eq!((&done["agent"], &done["turns"]), (&shown_name, &json!(2)), "{desk_name} {notes_name}");
    }
}

#[tokio::test]
async fn a_decision_reaches_an_agent_in_another_program() {
    let store = std::sync::Arc::new(InMemoryStore::new());
    let agent = agent(store.clone());
    let server = Web::new().store("elsewhere", store).spawn("127.0.0.1:0").await.unwrap();
    let run = agent.ask("Pay").await.unwrap_err().into_run();
    let shown = until(&server, run.id().as_str(), "waiting").await;
    let decision = json!({ "wait": shown["open"][0]["id"], "decision": "approve" }).to_string();
    let path = format!("POST /api/runs/{}/decisions", run.id());
    assert_eq!(send(&server, &path, "", &decision).await.0, 200);
    let answer = agent.resume(run).await.unwrap();
    assert_eq!(answer.tool_executions()[0].decisions()[0].by.as_deref(), Some("local user"));
}

#[tokio::test]
async fn an_agent_without_a_run_store_is_decided_in_its_process() {
    let model = || ScriptedModel::new().calls("pay", r#"{"cents": 7}"#).says("Done.");
    let build = || Agent::builder(model()).tools(tools![pay]).build().unwrap();
    let agent = build();
    let server = tool_web::serve(agent.clone()).await.unwrap();
    let run = agent.ask("Pay").await.unwrap_err().into_run();
    let decide = |shown: &Value| json!({ "wait": shown["open"][0]["id"], "decision": "approve" }).to_string();
    let shown = until(&server, run.id().as_str(), "waiting").await;
    let path = format!("POST /api/runs/{}/decisions", run.id());
    assert_eq!(send(&server, &path, "", &decide(&shown)).await.0, 200);
    until(&server, run.id().as_str(), "done").await;
    // The caller's copy is outdated, so nothing is paid twice.
    let error = agent.resume(run).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Conflict), "{error}");

    // A caller that decides itself goes on as without the page.
    let agent = build();
    let server = tool_web::serve(agent.clone()).await.unwrap();
    let mut run = agent.ask("Pay").await.unwrap_err().into_run();
    let wait = run.waits().remove(0).id;
    run.resolve(&wait, Decision::approve()).unwrap();
    let id = run.id().to_string();
    assert_eq!(agent.resume(run).await.unwrap().text(), "Done.");
    until(&server, &id, "done").await;
}

#[tokio::test]
async fn runs_that_nobody_decides_are_bounded() {
    let model = (0..1_005).fold(ScriptedModel::new(), |model, _| model.calls("pay", r#"{"cents": 7}"#));
    let agent = Agent::builder(model).tools(tools![pay]).build().unwrap();
    let _server = tool_web::serve(agent.clone()).await.unwrap();
    for _ in 0..1_005 {
        agent.ask("Pay").await.unwrap_err();
    }
    assert_eq!(agent.list_runs(&RunFilter::new()).await.unwrap().len(), 1_000);
}

#[tokio::test]
async fn calls_inside_agents_are_described_and_checked() {
    let model = ScriptedModel::new().calls("pay", r#"{"cents": 7}"#).says("Paid.");
    let helper = Agent::builder(model).tools(tools![pay]).build().unwrap().as_tool("helper", "Helps");
    let model = ScriptedModel::new().calls("helper", r#"{"question": "Pay"}"#).says("Done.");
    let agent = Agent::builder(model).tools(helper).run_store(InMemoryStore::new()).build().unwrap();
    let server = tool_web::serve(agent.clone()).await.unwrap();
    let run = agent.ask("Pay").await.unwrap_err().into_run().id().to_string();
    let shown = until(&server, &run, "waiting").await;
    let wait = &shown["open"][0];
    assert_eq!((&wait["agents"], &wait["description"]), (&json!(["helper"]), &json!("Pays a bill")));
    assert_eq!(
        (&wait["fields"][0]["name"], &wait["fields"][0]["is_required"]),
        (&json!("cents"), &json!(true))
    );
    assert_eq!(wait["fields"][0]["schema"]["type"], "integer");
    let path = format!("POST /api/runs/{run}/decisions");
    let edit = |cents: Value| json!({ "wait": wait["id"], "decision": { "edit": { "cents": cents } } });
    let (status, text) = send(&server, &path, "", &edit(json!("many")).to_string()).await;
    let expected = r#"the call cannot be approved with these arguments: invalid arguments: `cents`: expected an integer from 0, got "many""#;
    assert_eq!((status, &*text), (400, expected));
    assert_eq!(send(&server, &path, "", &edit(json!(8)).to_string()).await.0, 200);
    until(&server, &run, "done").await;
}

/// A model that proposes very many calls must not make the page slow.
#[test]
fn the_work_grows_with_the_number_of_calls_inside_an_agent_and_not_faster() {
    let allocations = |count: usize| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let calls = (0..count).map(|cents| ("pay", format!(r#"{{"cents": {cents}}}"#)));
        let model = ScriptedModel::new().calls_all(calls);
        let helper = Agent::builder(model).tools(tools![pay]).build().unwrap().as_tool("helper", "Helps");
        let model = ScriptedModel::new().calls("helper", r#"{"question": "Pay"}"#);
        let agent = Agent::builder(model).tools(helper).run_store(InMemoryStore::new()).build().unwrap();
        let (server, run) = runtime.block_on(async {
            let server = tool_web::serve(agent.clone()).await.unwrap();
            (server, agent.ask("Pay").await.unwrap_err().into_run().id().to_string())
        });
        let mut shown = Value::Null;
        let described = allocation_counter::measure(|| {
            shown = runtime.block_on(get(&server, &format!("api/runs/{run}")));
        });
        assert_eq!(shown["open"].as_array().unwrap().len(), count);
        assert_eq!(shown["open"][count - 1]["agents"], json!(["helper"]));
        let list = runtime.block_on(get(&server, "api/runs"));
        let summary = list["runs"][0]["summary"].as_array().unwrap();
        assert_eq!((summary.len(), &summary[20]), (21, &json!(format!("and {} more", count - 20))));
        described.count_total
    };
    let (few, many) = (allocations(30), allocations(300));
    assert!(many < 12 * few, "{many} allocations for ten times the calls of {few}");
}

/// Returns the body of a page of plain HTML.
async fn html(server: &RunningServer, path: &str) -> String {
    let (status, body) = send(server, &format!("GET /{path}"), "", "").await;
    assert_eq!(status, 200, "{body}");
    body
}

#[tokio::test]
async fn runs_are_read_without_scripts() {
    const HOSTILE: &str = "<script>alert('1')</script>&amp; \u{202e}fdp.exe";
    const ESCAPED: &str = r"&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;amp; \u{202e}fdp.exe";
    let model = ScriptedModel::new().calls("break", json!({ HOSTILE: HOSTILE }).to_string());
    let model = model.calls("pay", r#"{"cents": 7}"#).says(HOSTILE);
    let agent = Agent::builder(model)
        .name(HOSTILE)
        .tools(tools![breaks, pay])
        .run_store(InMemoryStore::new())
        .build()
        .unwrap();
    let web = Web::new().agent(agent.clone()).key("eve", "sk-eve", [Right::Chat]);
    let server = web.clone().spawn("127.0.0.1:0").await.unwrap();
    for path in ["GET /plain", "GET /plain/x"] {
        assert_eq!(send(&server, path, "", "").await.0, 401);
        assert_eq!(send(&server, path, "authorization: Bearer sk-eve\r\n", "").await.0, 403);
    }
    let server = Web::new().agent(agent.clone()).spawn("127.0.0.1:0").await.unwrap();
    let run = agent.ask(HOSTILE).await.unwrap_err().into_run();
    let id = run.id().to_string();
    let list = html(&server, "plain").await;
    let row = format!(
        r#"<li><a href="plain/{id}">{ESCAPED}</a> waiting · {ESCAPED} · turn 2 · 0 tokens<br>pay {{&quot;cents&quot;: 7}}</li>"#
    );
    assert!(list.contains(&row), "{list}");
    let waiting = html(&server, &format!("plain/{id}")).await;
    assert!(waiting.contains("<ul><li>pay {&quot;cents&quot;: 7}</li></ul>"), "{waiting}");
    let mut run = run;
    run.resolve(&run.waits().remove(0).id, Decision::deny(HOSTILE)).unwrap();
    agent.resume(run).await.unwrap();
    let done = html(&server, &format!("plain/{id}")).await;
    let end = format!("<h3>Turn 3</h3><pre class=\"full\">{ESCAPED}</pre><h3>Done</h3>");
    assert!(done.contains(&end), "{done}");
    assert!(
        done.contains(&format!(
            "<h3>Error of pay</h3><pre class=\"full\">the call was denied: {ESCAPED}</pre>"
        )),
        "{done}"
    );
    for page in [list, waiting, done] {
        assert!(!page.contains("<script") && !page.contains('\u{202e}'), "{page}");
    }
    assert_eq!(send(&server, "GET /plain/unknown", "", "").await.0, 404);
    assert_eq!(send(&server, "GET /plain", "sec-fetch-site: cross-site\r\n", "").await.0, 403);
}

/// What the model no longer reads is named where that began, in the events and on the page without scripts.
#[tokio::test]
async fn compactions_are_shown() {
    #[tool("Reads a page", pure)]
    fn page(number: u32) -> String {
        format!("page {number}: {}", "lorem ipsum ".repeat(200))
    }
    #[tool("Reads a contract", keep_output)]
    fn contract(number: u32) -> String {
        page(number)
    }
    for (name, hidden, [outputs, messages]) in [
        ("page", "1 outputs are hidden from the model", [1, 0]),
        ("contract", "a summary stands for 3 messages", [0, 3]),
    ] {
        let mut model = ScriptedModel::new().calls(name, r#"{"number": 1}"#).calls(name, r#"{"number": 2}"#);
        if outputs == 0 {
            model = model.says("Page 1 was read.");
        }
        let compaction = Compaction::when_it_pays().at_tokens(1_000).keep_recent_tokens(700);
        let agent = Agent::builder(model.says("Done."))
            .tools(tools![page, contract])
            .compaction(compaction)
            .run_store(InMemoryStore::new());
        let agent = agent.build().unwrap();
        let server = Web::new().agent(agent.clone()).spawn("127.0.0.1:0").await.unwrap();
        agent.ask("Read").await.unwrap();
        let list = get(&server, "api/runs?status=done").await;
        let run = list["runs"][0]["id"].as_str().unwrap();
        let events = events_until(&server, run, r#""type":"done""#).await;
        let compacted = format!(r#""type":"compacted","outputs":{outputs},"messages":{messages}"#);
        assert!(events.contains(&compacted), "{events}");
        let plain = html(&server, &format!("plain/{run}")).await;
        let (before, after) = plain.split_once(&format!("<h3>Compacted: {hidden}</h3>")).unwrap();
        assert!(before.contains("page 2: ") && after.contains("<h3>Turn 3</h3>"), "{plain}");
    }
}

#[tokio::test]
async fn requests_to_the_model_are_recorded_if_that_is_wanted() {
    let ask = async |web: Web| {
        let agent = agent(InMemoryStore::new());
        let server = web.agent(agent.clone()).spawn("127.0.0.1:0").await.unwrap();
        let run = agent.ask("Pay").await.unwrap_err().into_run().id().to_string();
        let first = get(&server, &format!("api/runs/{run}/turns/1")).await;
        (server, run, first)
    };
    let (server, run, first) = ask(Web::new().record_requests()).await;
    let request = &first["request"];
    assert_eq!(request["messages"], json!([{ "role": "user", "message": "Pay" }]));
    assert_eq!(request["tools"][0]["name"], "pay");
    assert_eq!(first["response"]["message"]["tool_calls"][0]["name"], "pay");
    assert_eq!(
        get(&server, &format!("api/runs/{run}/turns/9")).await,
        json!({ "request": null, "response": null })
    );
    // Otherwise, the stored state has the messages.
    let (server, run, first) = ask(Web::new()).await;
    assert_eq!(first["request"], json!({ "messages": [{ "role": "user", "message": "Pay" }] }));
    assert_eq!(first["response"]["message"]["tool_calls"][0]["name"], "pay");
    assert_eq!(send(&server, &format!("GET /api/runs/{run}/turns/x"), "", "").await.0, 400);
    let reader = Web::new().agent(agent(InMemoryStore::new())).key("eve", "sk", [Right::Read]);
    let server = reader.spawn("127.0.0.1:0").await.unwrap();
    let refused = send(&server, "GET /api/runs/x/turns/1", "authorization: Bearer sk\r\n", "").await;
    assert_eq!(refused, (403, "`eve` may not administer".to_owned()));
}

#[tokio::test]
async fn what_layers_changed_is_named_and_stays_hidden() {
    let model = || ScriptedModel::new().calls("read", "{}").calls("pay", r#"{"cents": 7}"#).says("Done.");
    let hide = || rewrite::output(|_: &ToolCall, _: &ToolOutput| "a [secret]").named("redaction");
    let inner = Agent::builder(model()).tools(tools![read, pay]).layer(hide()).build().unwrap();
    let outer = ScriptedModel::new().calls("helper", r#"{"question": "Read"}"#).says("Done.");
    let outer = Agent::builder(outer).tools(inner.as_tool("helper", "Helps"));
    let agent = Agent::builder(model()).tools(tools![read, pay]).layer(hide());
    for agent in [agent, outer] {
        let agent = agent.run_store(InMemoryStore::new()).build().unwrap();
        let server = tool_web::serve(agent.clone()).await.unwrap();
        // From the log, and as another process reads it from the store.
        let store = std::sync::Arc::clone(agent.run_store().unwrap());
        let other = Web::new().store("store", store).spawn("127.0.0.1:0").await.unwrap();
        let run = agent.ask("Read").await.unwrap_err().into_run().id().to_string();
        for server in [&server, &other] {
            let events = events_until(server, &run, r#""type":"waiting""#).await;
            assert!(events.contains("a [secret]") && events.contains(r#""layer":"redaction""#), "{events}");
            assert!(!events.contains("hunter2"), "{events}");
            let plain = html(server, &format!("plain/{run}")).await;
            let shown = "Result of read, seen by redaction</h3><pre class=\"full\">a [secret]</pre>";
            assert!(plain.contains(shown), "{plain}");
            assert!(!plain.contains("hunter2"), "{plain}");
        }
    }
}

#[tokio::test]
async fn chats_show_nothing_that_layers_replaced() {
    let hide = || rewrite::output(|_: &ToolCall, _: &ToolOutput| "a [secret]");
    let model = || ScriptedModel::new().calls("read", "{}").says("Done.");
    let agent = || Agent::builder(model()).tools(tools![read]).layer(hide()).build().unwrap();
    let message = json!({ "role": "user", "content": "Go" });
    let asked = json!({ "threadId": "c", "runId": "r", "messages": [message] });
    let chats = [(tool_web::ui_stream(agent()), question("c")), (tool_web::ag_ui(agent()), asked)];
    for (chat, asked) in chats {
        let shown = text(call(&chat, http::Request::post("/"), "", asked).await).await;
        assert!(shown.contains("a [secret]") && !shown.contains("hunter2"), "{shown}");
    }
}

/// The run has the output, and layers judge it before the next step.
#[tokio::test]
async fn an_output_that_a_layer_failed_to_judge_stays_hidden() {
    let model = ScriptedModel::new().calls("read", "{}").says("Done.");
    let down = guard::output(|_| Err::<OutputVerdict, _>("it is down"));
    let store = InMemoryStore::new();
    let agent = Agent::builder(model).tools(tools![read]).layer(down).run_store(store).build().unwrap();
    let run = agent.ask("Read").await.unwrap_err().into_run();
    let store = std::sync::Arc::clone(agent.run_store().unwrap());
    let server = Web::new().store("store", store).spawn("127.0.0.1:0").await.unwrap();
    let events = events_until(&server, run.id().as_str(), r#""type":"turn_finished""#).await;
    let plain = html(&server, &format!("plain/{}", run.id())).await;
    assert!(!events.contains("hunter2") && !plain.contains("hunter2"), "{events} {plain}");
}

#[tokio::test]
async fn arguments_that_a_layer_replaced_stay_hidden() {
    let model = || ScriptedModel::new().calls("echo", r#"{"text": "hunter2"}"#).says("Done.");
    let hide = rewrite::call(|_| Some(r#"{"text": "…"}"#.to_owned()));
    let agent = Agent::builder(model()).tools(tools![echo]).layer(hide).run_store(InMemoryStore::new());
    let agent = agent.build().unwrap();
    let server = tool_web::serve(agent.clone()).await.unwrap();
    let mut driver = agent.ask("Go").start();
    while driver.advance().await.unwrap() {}
    let run = driver.run().id().to_string();
    let events = events_until(&server, &run, r#""type":"call_finished""#).await;
    let plain = html(&server, &format!("plain/{run}")).await;
    assert!(!events.contains("hunter2") && !plain.contains("hunter2"), "{events} {plain}");
}

#[tokio::test]
async fn answers_of_layers_are_shown_and_what_they_replaced_is_hidden() {
    let hide = guard::answer(|_: &str| AnswerVerdict::Replace("a [secret]".to_owned()));
    let model = ScriptedModel::new().says("hunter2");
    let replaces = Agent::builder(model).layer(hide).build().unwrap();
    let answer = guard::question(|_: &Content| QuestionVerdict::Answer("a [secret]".to_owned()));
    let answers = Agent::builder(ScriptedModel::new()).layer(answer).build().unwrap();
    for agent in [replaces, answers] {
        check_answer(agent).await;
    }
}

async fn check_answer(agent: Agent) {
    let web = Web::new().agent(agent);
    let server = web.clone().spawn("127.0.0.1:0").await.unwrap();
    let app = axum::Router::new().nest_service("/chat", web.ui_stream("agent").unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let message = json!({ "role": "user", "parts": [{ "type": "text", "text": "What is it?" }] });
    let body = json!({ "id": "c", "messages": [message] }).to_string();
    let (status, chat) = send_to(address, "POST /chat", "", &body).await;
    assert_eq!(status, 200, "{chat}");
    assert!(chat.contains("a [secret]") && !chat.contains("hunter2"), "{chat}");
    let run = get(&server, "api/runs").await["runs"][0]["id"].as_str().unwrap().to_owned();
    let events = events_until(&server, &run, r#""type":"done""#).await;
    assert!(events.contains("a [secret]") && !events.contains("hunter2"), "{events}");
    let plain = html(&server, &format!("plain/{run}")).await;
    assert!(plain.contains("a [secret]") && !plain.contains("hunter2"), "{plain}");
}

#[tokio::test]
async fn the_cost_is_shown() {
    let prices = r#"{ "currency": "EUR", "models": { "small": { "input": 1, "output": 2 } } }"#;
    let prices = Prices::from_json(prices).unwrap().unknown_models(OnUnknownPrice::WorstPrice);
    let model = ScriptedModel::new().says("Hi").with_usage(Usage::new(1_000, 500));
    let agent = Agent::builder(model).prices(prices).build().unwrap();
    let server = tool_web::serve(agent.clone()).await.unwrap();
    let expected = agent.ask("Hello").await.unwrap().usage().cost.unwrap();
    let list = get(&server, "api/runs").await;
    assert_eq!(list["runs"][0]["usage"]["total_tokens"], 1_500);
    assert_eq!(list["runs"][0]["usage"]["cost"], serde_json::to_value(expected).unwrap());
    assert!(html(&server, "plain").await.contains(&format!("1500 tokens · {expected}")));
}

/// Two pages post opposite decisions after both have read an empty inbox.
#[tokio::test]
async fn of_two_programs_that_decide_in_the_same_moment_the_second_learns_of_the_first() {
    let store = std::sync::Arc::new(Simultaneous::new());
    let agent = agent(store.clone());
    let one = Web::new().store("one", store.clone()).key("anna", "sk", [Right::Read, Right::Decide]);
    let other = Web::new().store("other", store).key("eve", "sk", [Right::Read, Right::Decide]);
    let one = one.spawn("127.0.0.1:0").await.unwrap();
    let other = other.spawn("127.0.0.1:0").await.unwrap();
    let run = agent.ask("Pay").await.unwrap_err().into_run();
    let wait = run.waits().remove(0).id;
    let path = format!("POST /api/runs/{}/decisions", run.id());
    let key = "authorization: Bearer sk\r\n";
    let decide = |decision: Value| json!({ "wait": wait, "decision": decision }).to_string();
    let (approve, deny) = (decide(json!("approve")), decide(json!({ "deny": null })));
    let both = tokio::join!(send(&one, &path, key, &approve), send(&other, &path, key, &deny));
    let mut both = [(both.0, "anna"), (both.1, "eve")];
    both.sort_by_key(|((status, _), _)| *status);
    let [((200, recorded), first), ((409, refused), _)] = both else { panic!("{both:?}") };
    assert_eq!(refused, recorded, "the second reads the decision of the first");
    let answer = agent.resume(run).await.unwrap();
    assert_eq!(answer.tool_executions()[0].decisions()[0].by.as_deref(), Some(first));
}

/// A store whose posts are made two at a time, unless those to one run hang, and so are its first two searches for the runs of a
/// conversation.
struct Simultaneous {
    store: InMemoryStore,
    both: tokio::sync::Barrier,
    searches: AtomicUsize,
    hangs_for: std::sync::OnceLock<String>,
    hangs: tokio::sync::Notify,
}

impl Simultaneous {
    fn new() -> Self {
        let (store, both) = (InMemoryStore::new(), tokio::sync::Barrier::new(2));
        let (searches, hangs_for) = (AtomicUsize::new(0), std::sync::OnceLock::new());
        Self { store, both, searches, hangs_for, hangs: tokio::sync::Notify::new() }
    }

    async fn meet(&self) -> Result<(), tokio::time::error::Elapsed> {
        tokio::time::timeout(PATIENCE, self.both.wait()).await.map(drop)
    }
}

impl RunStore for Simultaneous {
    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
        Box::pin(async move {
            if filter.conversation.is_some() && self.searches.fetch_add(1, Ordering::Relaxed) < 2 {
                self.meet().await?;
            }
            self.store.list_runs(filter).await
        })
    }

    fn append_run<'a>(
        &'a self,
        id: &'a str,
        expected: Option<&'a RunRevision>,
        changes: &'a RunChanges,
    ) -> StoreFuture<'a, SaveOutcome> {
        self.store.append_run(id, expected, changes)
    }

    fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>> {
        self.store.load_run(id)
    }

    fn entries<'a>(
        &'a self,
        id: &'a str,
        after: Option<u64>,
        limit: usize,
    ) -> StoreFuture<'a, Option<RunLog>> {
        self.store.entries(id, after, limit)
    }

    fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()> {
        self.store.remove_run(id)
    }

    fn lease<'a>(
        &'a self,
        id: &'a str,
        driver: &'a DriverId,
        request: LeaseRequest,
    ) -> StoreFuture<'a, LeaseState> {
        self.store.lease(id, driver, request)
    }

    fn post<'a>(&'a self, id: &'a str, command: &'a PostedCommand) -> StoreFuture<'a, PostOutcome> {
        Box::pin(async move {
            if self.hangs_for.get().is_some_and(|run| run == id) {
                self.hangs.notify_one();
                return std::future::pending().await;
            }
            if self.hangs_for.get().is_none() {
                self.meet().await?;
            }
            self.store.post(id, command).await
        })
    }

    fn posted<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Vec<PostedCommand>> {
        self.store.posted(id)
    }
}

#[tokio::test]
async fn requests_of_other_pages_hosts_and_senders_are_refused() {
    let read = [Right::Read];
    let server = Web::new().agent(agent(InMemoryStore::new())).key("eve", "sk-eve", read);
    let server = server.spawn("127.0.0.1:0").await.unwrap();
    let eve = "authorization: Bearer sk-eve\r\n";
    let table = [
        ("GET /", "", 200),
        ("GET /page.js", "", 200),
        ("GET /", "host: evil.example\r\n", 403),
        ("GET /api/runs", "", 401),
        ("GET /api/runs", "authorization: Bearer sk-mallory\r\n", 401),
        ("GET /api/runs", eve, 200),
        ("GET /api/runs", &format!("{eve}host: evil.example\r\n"), 403),
        ("GET /api/runs", &format!("{eve}sec-fetch-site: same-origin\r\n"), 200),
        ("GET /api/runs", &format!("{eve}sec-fetch-site: none\r\n"), 200),
        ("GET /api/runs", &format!("{eve}sec-fetch-site: same-site\r\n"), 403),
        ("GET /api/runs", &format!("{eve}sec-fetch-site: cross-site\r\n"), 403),
        ("GET /api/runs", &format!("{eve}origin: http://localhost\r\n"), 200),
        ("GET /api/runs", &format!("{eve}origin: http://localhost:1\r\n"), 403),
        ("GET /api/runs", &format!("{eve}origin: null\r\n"), 403),
        ("POST /api/runs/x/cancel", eve, 403),
        ("POST /api/runs/x/cancel", &format!("{eve}sec-fetch-site: none\r\n"), 403),
        ("GET /api/runs/x/state", eve, 403),
        ("GET /api/runs/x/decisions", eve, 405),
        ("GET /api/runs/x/events", eve, 404),
    ];
    for (head, headers, expected) in table {
        let (status, body) = send(&server, head, headers, "").await;
        assert_eq!(status, expected, "{head} {headers} {body}");
    }
    let decision = json!({ "wait": "x", "decision": "approve" }).to_string();
    let (status, body) = send(&server, "POST /api/runs/x/decisions", eve, &decision).await;
    assert_eq!((status, &*body), (403, "`eve` may not decide"));
    let error = Web::new().spawn("0.0.0.0:0").await.unwrap_err();
    assert!(error.to_string().contains("allow_remote"), "{error}");
}

/// No other right opens a route.
#[tokio::test]
async fn each_route_takes_one_right() {
    let rights = [Right::Read, Right::Decide, Right::Administer, Right::Chat];
    let web = Web::new().agent(agent(InMemoryStore::new()));
    let web = rights
        .iter()
        .fold(web, |web, right| web.key(format!("{right:?}"), format!("sk-{right:?}"), [*right]));
    let app = axum::Router::new()
        .nest_service("/runs", web.service())
        .nest_service("/ui", web.ui_stream("agent").unwrap())
        .nest_service("/ag", web.ag_ui("agent").unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    for (head, needed) in [
        ("GET /runs/api/runs", Right::Read),
        ("HEAD /runs/api/runs", Right::Read),
        ("GET /runs/api/runs/x", Right::Read),
        ("GET /runs/api/runs/x/events", Right::Read),
        ("GET /runs/plain", Right::Read),
        ("GET /runs/plain/x", Right::Read),
        ("GET /runs/api/runs/x/state", Right::Administer),
        ("GET /runs/api/runs/x/turns/1", Right::Administer),
        ("POST /runs/api/runs/x/cancel", Right::Administer),
        ("POST /runs/api/runs/x/resume", Right::Administer),
        ("POST /runs/api/runs/x/end", Right::Administer),
        ("POST /runs/api/runs/x/decisions", Right::Decide),
        ("POST /runs/api/runs/x/messages", Right::Administer),
        ("POST /ui/", Right::Chat),
        ("GET /ui/x/stream", Right::Chat),
        ("DELETE /ui/x/stream", Right::Chat),
        ("POST /ag/", Right::Chat),
        ("GET /ag/x/stream", Right::Chat),
        ("DELETE /ag/x/stream", Right::Chat),
    ] {
        for right in rights {
            let key = format!("authorization: Bearer sk-{right:?}\r\n");
            let (status, body) = send_to(address, head, &key, "").await;
            assert_ne!(status, 401, "{head} {body}");
            assert_eq!(status != 403, right == needed, "{head} {right:?} {status} {body}");
        }
    }
}

/// A store that loads only some runs until it has more permits.
struct Stalling {
    store: InMemoryStore,
    loads: tokio::sync::Semaphore,
}

impl RunStore for Stalling {
    fn append_run<'a>(
        &'a self,
        id: &'a str,
        expected: Option<&'a RunRevision>,
        changes: &'a RunChanges,
    ) -> StoreFuture<'a, SaveOutcome> {
        self.store.append_run(id, expected, changes)
    }

    fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>> {
        Box::pin(async move {
            self.loads.acquire().await?.forget();
            self.store.load_run(id).await
        })
    }

    fn entries<'a>(
        &'a self,
        id: &'a str,
        after: Option<u64>,
        limit: usize,
    ) -> StoreFuture<'a, Option<RunLog>> {
        self.store.entries(id, after, limit)
    }

    fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()> {
        self.store.remove_run(id)
    }

    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
        self.store.list_runs(filter)
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_of_many_runs_opens_before_all_are_read() {
    let loads = tokio::sync::Semaphore::new(50);
    let store = std::sync::Arc::new(Stalling { store: InMemoryStore::new(), loads });
    for number in 0..1_000 {
        let mut run = Run::new([Message::user(format!("question {number}"))]);
        store.save_run(&format!("run-{number}"), &mut run).await.unwrap();
    }
    let server = Web::new().store("many", store.clone()).spawn("127.0.0.1:0").await.unwrap();
    let first = get(&server, "api/runs").await;
    assert_eq!((first["runs"].as_array().unwrap().len(), &first["is_reading"]), (50, &json!(true)));
    store.loads.add_permits(1_000);
    let list = loop {
        let list = get(&server, "api/runs?text=question+999").await;
        if list["is_reading"] == false {
            break list;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    assert_eq!(list["counts"], json!({ "interrupted": 1_000 }));
    assert_eq!(list["runs"][0]["id"], "run-999");
}

/// Sends a request to a service, and returns the response, whose body can be a stream.
async fn call<S>(
    service: &S,
    request: http::request::Builder,
    key: &str,
    body: Value,
) -> http::Response<ResponseBody>
where
    S: Service<http::Request<Body>, Response = http::Response<ResponseBody>, Error = Infallible> + Clone,
{
    let request = request.header("host", "localhost").header("content-type", "application/json");
    let request = request.header("authorization", format!("Bearer {key}"));
    service.clone().call(request.body(Body::from(body.to_string())).unwrap()).await.unwrap()
}

async fn text(response: http::Response<ResponseBody>) -> String {
    let body = axum::body::to_bytes(Body::new(response.into_body()), usize::MAX).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

fn question(chat: &str) -> Value {
    json!({ "id": chat, "messages": [{ "role": "user", "parts": [{ "type": "text", "text": "Go" }] }] })
}

#[tool("Never ends")]
async fn hang() {
    std::future::pending().await
}

#[tokio::test]
async fn of_two_questions_at_once_in_a_chat_the_second_is_said_to_the_run_of_the_first() {
    let model = ScriptedModel::new().calls("hang", "{}").calls("hang", "{}");
    let store = std::sync::Arc::new(Simultaneous::new());
    store.hangs_for.set("another".to_owned()).unwrap();
    let agent = Agent::builder(model).tools(tools![hang]).run_store(store.clone()).build().unwrap();
    let web = Web::new().agent(agent);
    let (one, other) = (web.ui_stream("agent").unwrap(), web.ui_stream("agent").unwrap());
    let post = || http::Request::post("/");
    let ask = async |chat: &tool_web::Frontend| call(chat, post(), "", question("c")).await.status().as_u16();
    assert_eq!(tokio::join!(ask(&one), ask(&other)), (200, 200));
    while store.posted(&run_ids(&store).await[0]).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let [run] = &*run_ids(&store).await else { panic!("more than one run") };
    let posted = store.posted(run).await.unwrap();
    assert_eq!(posted[0].command, RunCommand::Say(UserMessage::new("Go").by("local user")));
}

/// The first run calls a tool that ends once the message has arrived.
#[tokio::test]
async fn a_message_in_a_chat_whose_run_works_is_read_after_the_results() {
    let (model, arrived) = (ScriptedModel::new(), std::sync::Arc::new(tokio::sync::Notify::new()));
    let model = model.calls("work", "{}").says("Done.");
    let arrival = arrived.clone();
    let work = tool_core::FunctionTool::new("work", move |_: ()| {
        let arrived = arrival.clone();
        async move { arrived.notified().await }
    });
    let agent = Agent::builder(model.clone()).tools(work).build().unwrap();
    let web = Web::new().agent(agent);
    let chat = web.ui_stream("agent").unwrap();
    let ask = async || call(&chat, http::Request::post("/"), "", question("c")).await;
    let (first, second) = (ask().await, ask().await);
    assert_eq!((first.status(), second.status()), (StatusCode::OK, StatusCode::OK));
    arrived.notify_one();
    let (first, second) = (text(first).await, text(second).await);
    assert!(first.contains("Done.") && second.contains("Done."), "{first}\n{second}");
    let requests = model.requests();
    let last: Vec<_> = requests[1].iter().map(|message| message.text().into_owned()).collect();
    assert_eq!(last, ["Go", "", "Success", "Go"]);
}

#[tokio::test]
async fn a_store_that_hangs_for_one_run_keeps_no_other_from_being_decided() {
    let store = std::sync::Arc::new(Simultaneous::new());
    let model =
        ScriptedModel::new().calls("pay", r#"{"cents": 1}"#).calls("pay", r#"{"cents": 2}"#).says("Done.");
    let agent = Agent::builder(model).tools(tools![pay]).run_store(store.clone()).build().unwrap();
    let mut runs = Vec::new();
    for _ in 0..2 {
        runs.push(agent.ask("Pay").await.unwrap_err().into_run());
    }
    store.hangs_for.set(runs[0].id().to_string()).unwrap();
    let page = Web::new().agent(agent).service();
    let decide = async |run: &Run| {
        let body = json!({ "wait": run.waits()[0].id, "decision": "approve" });
        let request = http::Request::post(format!("/api/runs/{}/decisions", run.id()));
        call(&page, request, "", body).await.status().as_u16()
    };
    tokio::select! {
        status = decide(&runs[0]) => panic!("{status}"),
        status = async { store.hangs.notified().await; decide(&runs[1]).await } => assert_eq!(status, 200),
    }
    while open_runs(&store).await > 1 {
        tokio::task::yield_now().await;
    }
}

/// Returns the number of stored runs that have not ended.
async fn open_runs(store: &dyn RunStore) -> usize {
    let runs = store.list_runs(&RunFilter::new()).await.unwrap();
    runs.iter().filter(|run| run.status != RunStatus::Finished).count()
}

#[tokio::test]
async fn an_unknown_agent_is_refused_when_its_chat_is_built() {
    let store = InMemoryStore::new();
    let web = Web::new().agent(agent(store.clone())).store("elsewhere", store);
    for (name, expected) in [
        ("agnt", "unknown agent `agnt`; did you mean `agent`?"),
        ("elsewhere", "unknown agent `elsewhere`; add it with `Web::agent`"),
    ] {
        assert_eq!(web.ui_stream(name).unwrap_err().to_string(), expected);
        assert_eq!(web.ag_ui(name).unwrap_err().to_string(), expected);
    }
}

#[tokio::test]
async fn the_streams_of_one_reader_keep_nobody_from_deciding() {
    let agent = agent(InMemoryStore::new());
    let run = agent.ask("Pay").await.unwrap_err().into_run();
    let read = [Right::Read, Right::Decide];
    let web = Web::new().agent(agent).key("eve", "sk-eve", read).key("anna", "sk-anna", read);
    let page = web.service();
    let events = || http::Request::get(format!("/api/runs/{}/events", run.id()));
    let mut streams = Vec::new();
    for _ in 0..100 {
        let stream = call(&page, events(), "sk-eve", json!(null)).await;
        assert_eq!(stream.status(), 200);
        streams.push(stream);
    }
    let refused = call(&page, events(), "sk-eve", json!(null)).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(text(refused).await, "`eve` reads 100 streams already; close some of them");
    assert_eq!(call(&page, events(), "sk-anna", json!(null)).await.status(), 200);
    streams.pop();
    assert_eq!(call(&page, events(), "sk-eve", json!(null)).await.status(), 200);
}

/// A sender that asks and leaves again and again.
#[tokio::test]
async fn runs_count_for_their_sender_until_they_end_also_if_nobody_reads_them() {
    let model = (0..103).fold(ScriptedModel::new(), |model, _| model.calls("hang", "{}"));
    let agent = Agent::builder(model).tools(tools![hang]).build().unwrap();
    let ask = [Right::Chat];
    let web = Web::new().agent(agent).key("eve", "sk-eve", ask).key("anna", "sk-anna", ask);
    let chats = web.ui_stream("agent").unwrap();
    let asks = async |key, chat: String| call(&chats, http::Request::post("/"), key, question(&chat)).await;
    for chat in 0..100 {
        assert_eq!(asks("sk-eve", chat.to_string()).await.status(), 200);
    }
    let refused = asks("sk-eve", "more".to_owned()).await;
    assert_eq!(refused.status(), 429);
    let expected = "`eve` has 100 runs in progress already; wait until one ends, or cancel one";
    assert_eq!(text(refused).await, expected);
    assert_eq!(asks("sk-anna", "0".to_owned()).await.status(), 200);
    let cancelled = call(&chats, http::Request::delete("/7/stream"), "sk-eve", json!(null)).await;
    assert_eq!(cancelled.status(), 204);
    while asks("sk-eve", "more".to_owned()).await.status() != 200 {
        tokio::task::yield_now().await;
    }
}

/// What `anna` waits for stays, although the store is smaller than what `eve` sends.
#[tokio::test]
async fn a_flood_of_messages_in_a_chat_is_refused_and_removes_no_run_of_another_user() {
    let store = InMemoryStore::new().max_run_bytes(1 << 20);
    let waiting = agent(store.clone()).ask("Pay").user("anna").await.unwrap_err().into_run();
    let model = ScriptedModel::new().calls("hang", "{}");
    let works =
        Agent::builder(model).name("works").tools(tools![hang]).run_store(store.clone()).build().unwrap();
    let web = Web::new().agent(works).key("eve", "sk-eve", [Right::Chat]);
    let chats = web.ui_stream("works").unwrap();
    let says = async |text: String| {
        let message = json!({ "role": "user", "parts": [{ "type": "text", "text": text }] });
        let body = json!({ "id": "c", "messages": [message] });
        call(&chats, http::Request::post("/"), "sk-eve", body).await
    };
    assert_eq!(says("Go".to_owned()).await.status(), 200);
    let expected = "the message was not sent: a run takes messages of up to 256 KiB, 100 messages or 4 MiB that it has not read, and \
                    16 MiB in all; send a shorter one, or wait until the run has read the others";
    let refused = says("x".repeat(1_000_000)).await;
    assert_eq!((refused.status().as_u16(), &*text(refused).await), (429, expected));
    let mut statuses = Vec::new();
    for _ in 0..20 {
        statuses.push(says("x".repeat(250_000)).await.status().as_u16());
    }
    assert_eq!(statuses, [[200; 16].as_slice(), &[429; 4]].concat());
    let mut runs = run_ids(&store).await;
    runs.retain(|run| *run != *waiting.id().as_str());
    let [run] = &*runs else { panic!("the run of anna was removed, or eve has another one") };
    assert_eq!(run_ids(&store).await.len(), 2);
    let posted = store.posted(run).await.unwrap();
    assert_eq!(posted.len(), 16);
    assert!(posted.iter().all(|posted| posted.command.message().unwrap().by.as_deref() == Some("eve")));
}

#[tokio::test]
async fn a_message_of_the_page_is_recorded_with_its_principal() {
    let store = InMemoryStore::new();
    let agent = agent(store.clone());
    let run = agent.ask("Pay").await.unwrap_err().into_run();
    let web = Web::new().agent(agent).key("staff", "sk-staff", [Right::Administer]);
    let request = http::Request::post(format!("/api/runs/{}/messages", run.id()));
    let sent = call(&web.service(), request, "sk-staff", json!({ "text": "Hurry" })).await;
    assert_eq!(sent.status(), 204);
    let posted = store.posted(run.id().as_str()).await.unwrap();
    assert_eq!(posted[0].command, RunCommand::Say(UserMessage::new("Hurry").by("staff")));
}

#[tokio::test]
async fn a_login_of_the_program_is_asked_for_without_bearer_tokens() {
    let web = Web::new().authentication(|_: &http::HeaderMap| None);
    let refused = call(&web.service(), http::Request::get("/api/runs"), "", json!(null)).await;
    assert_eq!((refused.status().as_u16(), refused.headers().get("www-authenticate")), (401, None));
    let expected =
        "not logged in, or the login is over; log in, and send the cookies or headers of the login";
    assert_eq!(text(refused).await, expected);
}

/// Only the program knows the budget of its question.
#[tokio::test]
async fn a_run_with_a_budget_of_its_own_is_decided_and_not_continued_here() {
    let budget = Budget::tokens(InMemoryStore::new(), 1_000_000, Duration::from_secs(3_600));
    let model = ScriptedModel::new().calls("pay", r#"{"cents": 7}"#).with_usage(Usage::new(40, 10));
    let model = model.says("Done.").with_usage(Usage::new(40, 10));
    let agent = Agent::builder(model).options(ModelOptions::default().with_max_output_tokens(500));
    let agent = agent.tools(tools![pay]).run_store(InMemoryStore::new()).build().unwrap();
    let ask = agent.ask("Pay").conversation("local user/c").budget(budget.key("ada"));
    let error = ask.await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
    let run: Run = serde_json::from_value(serde_json::to_value(error.into_run()).unwrap()).unwrap();
    assert!(run.engine_view().has_own_budget());
    let web = Web::new().agent(agent.clone());
    let server = web.clone().spawn("127.0.0.1:0").await.unwrap();
    let why = "the run is charged to a budget that only its program knows; let it continue the run: `agent.resume(run).budget(…)`";
    assert_eq!(get(&server, &format!("api/runs/{}", run.id())).await["error"], why);
    let refused = send(&server, &format!("POST /api/runs/{}/resume", run.id()), "", "").await;
    assert_eq!(refused, (409, why.to_owned()));
    let wait = run.waits().remove(0).id;
    let part = json!({ "type": "tool-pay", "state": "approval-responded", "approval": { "id": wait, "approved": true } });
    let approval = json!({ "id": "c", "messages": [{ "role": "assistant", "parts": [part] }] });
    for body in [question("c"), approval] {
        let chat = web.ui_stream("agent").unwrap();
        let refused = call(&chat, http::Request::post("/"), "", body).await;
        assert_eq!((refused.status().as_u16(), text(refused).await), (409, why.to_owned()));
    }
    let decision = json!({ "wait": wait, "decision": "approve" }).to_string();
    let (status, recorded) =
        send(&server, &format!("POST /api/runs/{}/decisions", run.id()), "", &decision).await;
    assert_eq!(status, 200, "{recorded}");
    let shown = get(&server, &format!("api/runs/{}", run.id())).await;
    assert_eq!(
        (&shown["status"], &shown["open"][0]["recorded"]["kind"]),
        (&json!("waiting"), &json!("approved"))
    );
    // The program continues it with the decision.
    let answer = agent.resume(run).budget(budget.key("ada")).await.unwrap();
    assert_eq!(answer.text(), "Done.");
}

static REFUNDS: AtomicUsize = AtomicUsize::new(0);

#[tool(undo = "take_back")]
fn refund() -> &'static str {
    REFUNDS.fetch_add(1, Ordering::SeqCst);
    "refunded"
}

#[tool]
fn take_back() {
    REFUNDS.fetch_sub(1, Ordering::SeqCst);
}

/// A refund was made, and nobody has continued the run for too long.
#[tokio::test]
async fn a_person_decides_what_becomes_of_an_expired_run() {
    for (action, left) in [("resume", 1), ("end", 1), ("cancel", 0)] {
        REFUNDS.store(0, Ordering::SeqCst);
        let store = InMemoryStore::new();
        let agent = Agent::builder(ScriptedModel::new().calls("refund", "{}").fails("down").says("Done."));
        let agent =
            agent.tools(tools![refund, take_back]).run_store(store.clone()).max_run_age(Duration::ZERO);
        let agent = agent.build().unwrap();
        let id = agent.ask("Refund my order").await.unwrap_err().run().id().to_string();
        let server = Web::new().agent(agent).spawn("127.0.0.1:0").await.unwrap();
        assert_eq!(get(&server, &format!("api/runs/{id}")).await["status"], "expired");
        let (status, error) = send(&server, &format!("POST /api/runs/{id}/{action}"), "", "").await;
        assert_eq!((status, &*error), (204, ""), "{action}");
        while open_runs(&store).await > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(REFUNDS.load(Ordering::SeqCst), left, "{action}");
    }
}

#[tool]
fn whoami(#[inject] user: &RunUser) -> String {
    format!("you are {user}")
}

#[tokio::test]
async fn a_stream_asks_as_the_principal_that_logged_in() {
    let model = ScriptedModel::new().calls("whoami", "{}").says("Done.");
    let agent = Agent::builder(model).tools(tools![whoami]).run_store(InMemoryStore::new());
    let agent = agent.keep_finished(Duration::from_secs(3_600)).build().unwrap();
    let web = Web::new().agent(agent).key("anna", "sk-anna", [Right::Chat, Right::Read]);
    let chats = web.ui_stream("agent").unwrap();
    let reply = call(&chats, http::Request::post("/"), "sk-anna", question("c")).await;
    let reply = text(reply).await;
    assert!(reply.contains("you are anna"), "{reply}");
    for (user, expected) in [("anna", 1), ("eve", 0)] {
        let list = http::Request::get(format!("/api/runs?user={user}"));
        let list: Value =
            serde_json::from_str(&text(call(&web.service(), list, "sk-anna", json!(null)).await).await)
                .unwrap();
        let runs = list["runs"].as_array().unwrap();
        assert_eq!(runs.len(), expected, "{list}");
        assert!(runs.iter().all(|run| run["user"] == user), "{list}");
    }
}
