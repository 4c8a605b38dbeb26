//! Calls that become tasks of their server, whose results are fetched later.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tool_core::run::Decision;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, CancellationToken, ToolSet};
use tool_mcp::McpServer;

use super::asking::{agent, discovered, form, listed, restored};
use super::support::{Received, Reply, ServerConnection, call, scripted_server, wait_until};

/// A task as servers describe it.
pub(super) fn task(status: &str, more: Value) -> Value {
    let mut task = json!({
        "taskId": "t-1",
        "status": status,
        "createdAt": "2026-11-27T00:00:00Z",
        "lastUpdatedAt": "2026-11-27T00:00:00Z",
        "ttlMs": 60_000,
        "pollIntervalMs": 1_000,
        "resultType": "complete",
    });
    task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    task
}

/// A server whose calls become tasks, which this function describes when they are polled. It gets the number of the poll, starting at 1,
/// and all answers until then.
fn with_tasks(poll: impl Fn(usize, &[Value]) -> Value + Send + Sync + 'static) -> (McpServer, Received) {
    let state = Arc::new(Mutex::new((0, Vec::new())));
    scripted_server(move |_: &ServerConnection, method, message| {
        let mut state = state.lock().unwrap();
        Reply::Result(match method {
            "initialize" => return Reply::Error(-32601, "Method not found"),
            "server/discover" => {
                discovered(json!({ "tools": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } }))
            }
            "tools/list" => listed(),
            "tools/call" => task("working", json!({ "resultType": "task" })),
            "tasks/update" => {
                state.1.push(message["params"]["inputResponses"].clone());
                json!({ "resultType": "complete" })
            }
            "tasks/get" => {
                state.0 += 1;
                poll(state.0, &state.1)
            }
            "tasks/cancel" => json!({ "resultType": "complete" }),
            _ => return Reply::NoResponse,
        })
    })
}

fn input_required(requests: Value) -> Value {
    task("input_required", json!({ "inputRequests": requests }))
}

fn completed(text: &str) -> Value {
    task("completed", json!({ "result": { "content": [{ "type": "text", "text": text }] } }))
}

/// Continues the run in another process: it lets the time come for which its call waits, until a person is asked or the run has ended.
async fn resume(agent: &tool_core::Agent, run: tool_core::run::Run) -> tool_core::run::Run {
    let mut run = restored(&run);
    for _ in 0..10 {
        let mut driver = agent.resume(run).start();
        while driver.advance().await.unwrap_or(false) {}
        run = restored(&driver.into_run());
        let wait = run.waits().into_iter().next();
        match wait.filter(tool_core::run::Wait::is_until) {
            Some(wait) => drop(run.tick(wait.deadline.unwrap())),
            None => break,
        }
    }
    run
}

/// The result of a task is fetched later, by any process; what it asks for meanwhile, a person answers.
#[tokio::test]
async fn a_task_is_fetched_later() {
    let (server, received) = with_tasks(|poll, answers| match (poll, answers) {
        (1, _) => task("working", json!({})),
        (_, []) => input_required(json!({ "seat": form("Which seat?", "seat") })),
        _ => completed("booked"),
    });
    let connected = server.connect().await.unwrap();
    let agent = agent(connected.tools().await.unwrap());
    let mut driver = agent.start("Book");
    assert!(driver.advance().await.unwrap());
    // The call parks itself until the server wants to be asked again.
    assert!(driver.advance().await.unwrap());
    let mut run = restored(&driver.into_run());
    let wait = run.waits().remove(0);
    assert!(wait.is_until() && wait.deadline.is_some());
    run.tick(wait.deadline.unwrap());
    let mut run = resume(&agent, run).await;
    let wait = run.waits().remove(0);
    assert_eq!(wait.question().unwrap().text(), "The server `raw` asks: Which seat?");
    run.resolve(&wait.id, Decision::answer(json!({ "seat": "12C" }))).unwrap();
    let run = resume(&agent, run).await;
    assert_eq!(run.tool_executions()[0].output().unwrap().to_string(), "booked");
    assert_eq!((received.count("tools/call"), received.count("tasks/update")), (1, 1));
    let declared =
        &received.all("tools/call")[0]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    assert!(declared["extensions"]["io.modelcontextprotocol/tasks"].is_object(), "{declared}");
}

/// A key of a request stands for one question: it is asked once, however often the server lists it, and another key with the same text is
/// another question.
#[tokio::test]
async fn questions_of_a_task_are_told_apart_by_their_keys() {
    let seats = |key: &str| input_required(json!({ key: form("Which seat?", "seat") }));
    let (server, received) = with_tasks(move |_, answers| match answers.len() {
        // The first answer is lost, so the key stays open.
        0 | 1 => seats("first"),
        2 => seats("second"),
        _ => completed("booked"),
    });
    let connected = server.connect().await.unwrap();
    let agent = agent(connected.tools().await.unwrap());
    let mut run = agent.ask("Book").await.unwrap_err().into_run();
    for seat in ["12C", "14A"] {
        let wait = run.waits().remove(0);
        assert_eq!(wait.question().unwrap().text(), "The server `raw` asks: Which seat?");
        run.resolve(&wait.id, Decision::answer(json!({ "seat": seat }))).unwrap();
        run = resume(&agent, run).await;
    }
    assert_eq!(run.tool_executions()[0].output().unwrap().to_string(), "booked");
    let answers =
        received.all("tasks/update").into_iter().map(|update| update["params"]["inputResponses"].clone());
    let answer = |key: &str, seat: &str| json!({ key: { "action": "accept", "content": { "seat": seat } } });
    let expected = [answer("first", "12C"), answer("first", "12C"), answer("second", "14A")];
    assert_eq!(answers.collect::<Vec<_>>(), expected);
}

/// A key that a server uses for something else is a question of its own: nobody has agreed to that.
#[tokio::test]
async fn an_answer_is_not_given_to_another_question_of_the_same_key() {
    let ask = |text: &str| input_required(json!({ "a": form(text, "seat") }));
    let (server, received) = with_tasks(move |_, answers| match answers.len() {
        0 => ask("Which seat?"),
        1 => ask("Pay 900 Euro?"),
        _ => completed("booked"),
    });
    let connected = server.connect().await.unwrap();
    let agent = agent(connected.tools().await.unwrap());
    let mut run = agent.ask("Book").await.unwrap_err().into_run();
    let wait = run.waits().remove(0);
    run.resolve(&wait.id, Decision::answer(json!({ "seat": "12C" }))).unwrap();
    let mut run = resume(&agent, run).await;
    let wait = run.waits().remove(0);
    assert_eq!(wait.question().unwrap().text(), "The server `raw` asks: Pay 900 Euro?");
    run.resolve(&wait.id, Decision::decline()).unwrap();
    let run = resume(&agent, run).await;
    assert_eq!(run.tool_executions()[0].output().unwrap().to_string(), "booked");
    assert_eq!(
        received.all("tasks/update").remove(1)["params"]["inputResponses"],
        json!({ "a": { "action": "decline" } })
    );
}

/// The end of a call that nobody continues is the end of its task: when it is dropped or too slow, and when its run is cancelled.
#[tokio::test(start_paused = true)]
async fn a_task_is_cancelled_with_its_call() {
    let is_cancelled = async |received: Received| {
        wait_until("the task is cancelled", async || received.count("tasks/cancel") == 1).await;
        assert_eq!(received.all("tasks/cancel")[0]["params"]["taskId"], "t-1");
    };
    let working = || with_tasks(|_, _| task("working", json!({})));

    let (server, received) = working();
    let tools = server.record_messages().connect().await.unwrap().tools().await.unwrap();
    let calling = tokio::spawn(async move { call(&tools, "book", json!({})).await });
    wait_until("the task is polled twice", async || received.count("tasks/get") == 2).await;
    calling.abort();
    is_cancelled(received).await;

    let (server, received) = working();
    let server = server.record_messages().timeout(std::time::Duration::from_secs(1));
    let tools = server.connect().await.unwrap().tools().await.unwrap();
    let error = call(&tools, "book", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("did not respond to the task of `book`"), "{error}");
    is_cancelled(received).await;

    let (server, received) = scripted_server(|_, method, _| match method {
        "server/discover" => Reply::Result(discovered(json!({ "tools": {} }))),
        "tools/list" => Reply::Result(listed()),
        "tools/call" => Reply::Result(task("working", json!({ "resultType": "task" }))),
        _ => Reply::NoResponse,
    });
    let tools = server.record_messages().connect().await.unwrap().tools().await.unwrap();
    let cancellation = CancellationToken::new();
    let agent = agent(tools);
    let asked = agent.ask("Book").cancellation_token(cancellation.clone());
    let running = tokio::spawn(async move { asked.await });
    wait_until("the task is polled", async || received.count("tasks/get") == 1).await;
    cancellation.cancel();
    assert!(running.await.unwrap().is_err());
    is_cancelled(received).await;
}

/// A run that waits is continued later, so its task goes on; one that has its result is not cancelled.
#[tokio::test]
async fn a_task_goes_on_while_its_run_waits() {
    let (server, received) = with_tasks(|poll, _| match poll {
        1 => task("working", json!({})),
        _ => completed("booked"),
    });
    let connected = server.connect().await.unwrap();
    let agent = agent(connected.tools().await.unwrap());
    let mut driver = agent.start("Book");
    driver.advance().await.unwrap();
    driver.advance().await.unwrap();
    let mut run = restored(&driver.into_run());
    let wait = run.waits().remove(0);
    run.tick(wait.deadline.unwrap());
    let run = resume(&agent, run).await;
    assert_eq!(run.tool_executions()[0].output().unwrap().to_string(), "booked");
    assert_eq!((received.count("tasks/get"), received.count("tasks/cancel")), (2, 0));
}

/// The call waits for the next poll or for a person when its run is cancelled: in this process, in another one, or inside of another run.
#[tokio::test]
async fn a_task_is_cancelled_with_its_run_while_its_call_waits() {
    let is_cancelled = async |received: &Received| {
        wait_until("the task is cancelled", async || received.count("tasks/cancel") == 1).await;
        assert_eq!(received.all("tasks/cancel")[0]["params"]["taskId"], "t-1");
        assert_eq!(received.count("tools/call"), 1);
    };
    let cancelled = CancellationToken::new();
    cancelled.cancel();

    let (server, received) = with_tasks(|_, _| task("working", json!({})));
    let connected = server.connect().await.unwrap();
    let waiting = agent(connected.tools().await.unwrap());
    let cancellation = CancellationToken::new();
    let asked = waiting.ask("Book").cancellation_token(cancellation.clone());
    let running = tokio::spawn(async move { asked.await });
    wait_until("the task is polled", async || received.count("tasks/get") == 1).await;
    cancellation.cancel();
    assert!(running.await.unwrap().is_err());
    is_cancelled(&received).await;

    let (server, received) = with_tasks(|_, _| task("working", json!({})));
    let connected = server.connect().await.unwrap();
    let stored = agent(connected.tools().await.unwrap());
    let mut driver = stored.start("Book");
    driver.advance().await.unwrap();
    driver.advance().await.unwrap();
    let run = restored(&driver.into_run());
    assert!(run.waits()[0].is_until());
    stored.resume(run).cancellation_token(cancelled.clone()).await.unwrap_err();
    is_cancelled(&received).await;

    let (server, received) =
        with_tasks(|_, _| input_required(json!({ "seat": form("Which seat?", "seat") })));
    let connected = server.connect().await.unwrap();
    let desk = agent(connected.tools().await.unwrap());
    let model = ScriptedModel::new().calls("desk", r#"{"question": "Book"}"#);
    let desk = ToolSet::default().with(desk.as_tool("desk", "Books")).unwrap();
    let outer = Agent::builder(model).tools(desk).build().unwrap();
    let run = restored(outer.ask("Book").await.unwrap_err().run());
    assert!(run.waits()[0].question().is_some());
    assert_eq!(received.count("tasks/cancel"), 0);
    outer.resume(run).cancellation_token(cancelled).await.unwrap_err();
    is_cancelled(&received).await;
}
