//! Calls that become tasks of their server, whose results are fetched later.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tool_core::run::Decision;
use tool_core::signatures::Timestamp;
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
    with_polls(json!({}), move |number, answers| Reply::Result(poll(number, answers)))
}

/// The same, with further members of the task that a call becomes, and any reply to a poll.
fn with_polls(
    created: Value,
    poll: impl Fn(usize, &[Value]) -> Reply + Send + Sync + 'static,
) -> (McpServer, Received) {
    let state = Arc::new(Mutex::new((0, Vec::new())));
    scripted_server(move |_: &ServerConnection, method, message| {
        let mut state = state.lock().unwrap();
        Reply::Result(match method {
            "initialize" => return Reply::Error(-32601, "Method not found"),
            "server/discover" => {
                discovered(json!({ "tools": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } }))
            }
            "tools/list" => listed(),
            "tools/call" => {
                let mut task = task("working", created.clone());
                task["resultType"] = "task".into();
                task
            }
            "tasks/update" => {
                state.1.push(message["params"]["inputResponses"].clone());
                json!({ "resultType": "complete" })
            }
            "tasks/get" => {
                state.0 += 1;
                return poll(state.0, &state.1);
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
    let mut driver = agent.ask("Book").start();
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

/// A poll without an answer is repeated as long as the server has the task, also by another process. A call that ends without knowing the end
/// of its task cancels it.
#[tokio::test(start_paused = true)]
async fn a_poll_without_an_answer_is_repeated() {
    type First = fn() -> Reply;
    let unknown =
        "the call may or may not have taken effect and is not repeated; check its effect before you continue";
    let rows: [(Value, First, &str); 5] = [
        (json!({}), || Reply::Disconnect, "booked"),
        (json!({ "ttlMs": null }), || Reply::NoResponse, "booked"),
        (json!({ "ttlMs": 0 }), || Reply::Disconnect, "disconnected before it answered the task of `book`"),
        (json!({}), || Reply::Error(-32602, "no such task"), "rejected the task of `book`: no such task"),
        (
            json!({}),
            || Reply::Result(task("working", json!({ "taskId": "t-2" }))),
            "answered for another task",
        ),
    ];
    for (created, first, expected) in rows {
        for is_run in [true, false] {
            let (server, received) = with_polls(created.clone(), move |number, _| match number {
                1 => first(),
                _ => Reply::Result(completed("booked")),
            });
            let server = server.record_messages();
            let tools = server.clone().connect().await.unwrap().tools().await.unwrap();
            let outcome = if is_run {
                let mut driver = agent(tools).ask("Book").start();
                driver.advance().await.unwrap();
                driver.advance().await.unwrap();
                let other = server.connect().await.unwrap().tools().await.unwrap();
                let model = ScriptedModel::new().says("Done.");
                let other = Agent::builder(model).tools(other).build().unwrap();
                let mut run = driver.into_run();
                if let Some(wait) = run.waits().first() {
                    run.tick(wait.deadline.unwrap());
                }
                let run = resume(&other, run).await;
                run.tool_executions()[0].outcome().map_or_else(ToString::to_string, ToString::to_string)
            } else {
                let called = call(&tools, "book", json!({})).await;
                called.map_or_else(|error| error.to_string(), |output| output.to_string())
            };
            assert!(outcome.contains(expected), "{outcome}");
            let is_lost = expected != "booked";
            assert_eq!(outcome.ends_with(unknown), is_lost, "{outcome}");
            assert_eq!(
                (received.count("tools/call"), received.count("tasks/get")),
                (1, if is_lost { 1 } else { 2 })
            );
            if is_lost {
                wait_until("the task is cancelled", async || received.count("tasks/cancel") == 1).await;
            } else {
                assert_eq!(received.count("tasks/cancel"), 0);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn questions_and_results_of_a_task_are_bounded() {
    let (server, received) = with_tasks(|_, answers| {
        input_required(json!({ answers.len().to_string(): form("Which seat?", "seat") }))
    });
    let tools = server.record_messages().connect().await.unwrap().tools().await.unwrap();
    let error = call(&tools, "book", json!({})).await.unwrap_err().to_string();
    assert!(
        error.contains("asked for input more than 32 times during one task; the call may or may not"),
        "{error}"
    );
    assert_eq!(received.count("tasks/update"), 32);

    let (server, _) = with_tasks(|_, _| completed(&"x".repeat(5_000)));
    let server = server.record_messages().max_output_chars(1_000);
    let tools = server.connect().await.unwrap().tools().await.unwrap();
    let output = call(&tools, "book", json!({})).await.unwrap().to_string();
    assert!((1_000..1_200).contains(&output.len()), "{}", output.len());
}

/// A call asks no more than 32 questions. The server reads that further ones are cancelled, and the task does not go on without the call.
#[tokio::test]
async fn a_task_that_asks_too_much_is_cancelled() {
    let (server, received) = with_tasks(|_, answers| {
        let seat = |which: &str| form(&format!("Which seat {which} of {}?", answers.len()), "seat");
        let key = |which: &str| format!("{which}{}", answers.len());
        input_required(json!({ key("a"): seat("a"), key("b"): seat("b") }))
    });
    let agent = agent(server.record_messages().connect().await.unwrap().tools().await.unwrap());
    let mut driver = agent.ask("Book").start();
    driver.advance().await.unwrap();
    driver.advance().await.unwrap();
    let (mut run, mut questions) = (driver.into_run(), 0);
    while run.tool_executions().is_empty() {
        for wait in run.waits() {
            match wait.is_until() {
                true => drop(run.tick(wait.deadline.unwrap())),
                false => {
                    questions += 1;
                    run.resolve(&wait.id, Decision::answer(json!({ "seat": "12C" }))).unwrap();
                }
            }
        }
        run = resume(&agent, run).await;
    }
    assert_eq!(questions, 32);
    let error = run.tool_executions()[0].to_string();
    assert!(error.contains("may or may not have taken effect"), "{error}");
    let last = received.all("tasks/update").pop().unwrap();
    assert!(last["params"]["inputResponses"].to_string().contains("cancel"), "{last}");
    wait_until("the task is cancelled", async || received.count("tasks/cancel") == 1).await;
}

/// A call is executed again when its server wants to be asked, within a second and an hour.
#[tokio::test]
async fn a_call_waits_as_long_as_its_server_states() {
    for (interval, expected) in [
        (json!(0), 1),
        (json!(7_000), 7),
        (json!(null), 5),
        (json!(3_600_000), 3600),
        (json!(u64::MAX), 3600),
    ] {
        let polled = json!({ "pollIntervalMs": interval });
        let (server, _) = with_polls(json!({ "pollIntervalMs": null }), move |_, _| {
            Reply::Result(task("working", polled.clone()))
        });
        let tools = server.connect().await.unwrap().tools().await.unwrap();
        let mut driver = agent(tools).ask("Book").start();
        driver.advance().await.unwrap();
        let before = Timestamp::now();
        driver.advance().await.unwrap();
        let deadline = driver.into_run().waits()[0].deadline.unwrap();
        let expected = Duration::from_secs(expected);
        assert!(
            (before.after(expected)..=Timestamp::now().after(expected)).contains(&deadline),
            "{interval}"
        );
    }
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
    let server = server.record_messages().timeout(Duration::from_secs(1));
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
    let mut driver = agent.ask("Book").start();
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
    let mut driver = stored.ask("Book").start();
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
