//! Calls of servers that ask for input: the call waits for the answers, and is sent again with them.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tool_core::run::{Decision, Run, WaitReason};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, RunErrorKind};
use tool_mcp::McpServer;

use super::support::{Received, Reply, ServerConnection, scripted_server, tool};

/// A server that speaks the newest protocol alone, and answers calls by this function.
fn newest(answer: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> (McpServer, Received) {
    scripted_server(move |_: &ServerConnection, method, message| match method {
        "initialize" => Reply::Error(-32601, "Method not found"),
        "server/discover" => Reply::Result(json!({
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": { "tools": {} },
            "ttlMs": 0,
            "cacheScope": "private",
        })),
        "tools/list" => {
            let list = json!({ "resultType": "complete", "tools": [tool("book")], "ttlMs": 0, "cacheScope": "private" });
            Reply::Result(list)
        }
        "tools/call" => answer(&message["params"]),
        _ => Reply::NoResponse,
    })
}

fn form(message: &str, property: &str) -> Value {
    json!({
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": message,
            "requestedSchema": {
                "type": "object",
                "properties": { property: { "type": "string", "minLength": 2 } },
                "required": [property],
            },
        },
    })
}

fn url(url: &str) -> Value {
    let params = json!({ "mode": "url", "message": "Confirm the payment", "url": url });
    json!({ "method": "elicitation/create", "params": params })
}

fn required(requests: Value, state: &str) -> Reply {
    Reply::Result(json!({ "resultType": "input_required", "inputRequests": requests, "requestState": state }))
}

fn complete(text: &str) -> Reply {
    Reply::Result(json!({ "resultType": "complete", "content": [{ "type": "text", "text": text }] }))
}

fn agent(tools: tool_core::ToolSet) -> Agent {
    let model = ScriptedModel::new().calls("book", r#"{"text": "a seat"}"#).says("Booked.");
    Agent::builder(model).tools(tools).build().unwrap()
}

fn restored(run: &Run) -> Run {
    serde_json::from_str(&serde_json::to_string(run).unwrap()).unwrap()
}

/// The run is stored with the question, and goes on in another process: the server is asked once, and gets its state back as it was.
#[tokio::test]
async fn a_call_waits_for_what_its_server_asks_for() {
    let (server, received) = newest(|params| match params.get("inputResponses") {
        None => required(
            json!({ "seat": form("Which seat?", "seat"), "page": url("https://pay.example/7") }),
            "s-1",
        ),
        Some(_) => complete("booked"),
    });
    let connected = server.connect().await.unwrap();
    let tools = connected.tools().await.unwrap();
    let agent = agent(tools.clone());
    let error = agent.ask("Book").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
    let mut run = restored(error.run());
    let waits = run.waits();
    let WaitReason::Answer(question) = &waits[0].reason else { panic!("{:?}", waits[0]) };
    assert!(question.text().starts_with("The server `raw` asks you to open a page"), "{}", question.text());
    assert!(question.text().contains("https://pay.example/7"));
    run.resolve(&waits[0].id, Decision::answer(true)).unwrap();
    let error = agent.resume(run).await.unwrap_err();
    let mut run = restored(error.run());
    let wait = run.waits().remove(0);
    assert_eq!(wait.question().unwrap().text(), "The server `raw` asks: Which seat?");
    // One that does not fit is asked again.
    run.resolve(&wait.id, Decision::answer(json!({ "seat": "A" }))).unwrap();
    let error = agent.resume(run).await.unwrap_err();
    let mut run = restored(error.run());
    let wait = run.waits().remove(0);
    assert!(wait.question().unwrap().text().contains("seat"), "{}", wait.question().unwrap().text());
    run.resolve(&wait.id, Decision::answer(json!({ "seat": "12C" }))).unwrap();
    assert_eq!(agent.resume(run).await.unwrap().tool_executions()[0].output().unwrap().to_string(), "booked");
    assert_eq!(received.count("tools/call"), 2);
    let last = received.all("tools/call").remove(1);
    assert_eq!(last["params"]["requestState"], "s-1");
    assert_eq!(
        last["params"]["inputResponses"],
        json!({
            "page": { "action": "accept" },
            "seat": { "action": "accept", "content": { "seat": "12C" } },
        })
    );
    let asks = &last["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]["elicitation"];
    assert!(asks.is_object(), "{last}");
}

/// Declined, not answered, or asked where nobody is.
#[tokio::test]
async fn what_is_not_answered_is_declined_or_cancelled() {
    let answered = |decision: Option<Decision>| async move {
        let (server, received) = newest(|params| match params.get("inputResponses") {
            None => required(json!({ "seat": form("Which seat?", "seat") }), "s-1"),
            Some(_) => complete("fine"),
        });
        let connected = server.connect().await.unwrap();
        let tools = connected.tools().await.unwrap();
        match decision {
            Some(decision) => {
                let agent = agent(tools.clone());
                let mut run = agent.ask("Book").await.unwrap_err().into_run();
                let wait = run.waits().remove(0);
                run.resolve(&wait.id, decision).unwrap();
                agent.resume(run).await.unwrap();
            }
            None => drop(super::support::call(&tools, "book", json!({})).await.unwrap()),
        }
        received.all("tools/call").remove(1)["params"]["inputResponses"]["seat"]["action"].clone()
    };
    assert_eq!(answered(Some(Decision::decline())).await, "decline");
    assert_eq!(answered(Some(Decision::unavailable())).await, "cancel");
    assert_eq!(answered(None).await, "cancel");
}

/// A state that is refused is left out, and the same question gets the same answer.
#[tokio::test]
async fn an_expired_state_is_left_out() {
    let calls = Arc::new(Mutex::new(0));
    let (server, received) = newest(move |params| {
        let mut calls = calls.lock().unwrap();
        *calls += 1;
        match (*calls, params.get("requestState").and_then(Value::as_str)) {
            (2, Some("s-1")) => Reply::Error(-32602, "Invalid or expired requestState"),
            (_, Some(_)) => complete("booked"),
            (_, None) => required(json!({ "seat": form("Which seat?", "seat") }), &format!("s-{calls}")),
        }
    });
    let connected = server.connect().await.unwrap();
    let tools = connected.tools().await.unwrap();
    let agent = agent(tools.clone());
    let mut run = agent.ask("Book").await.unwrap_err().into_run();
    let wait = run.waits().remove(0);
    run.resolve(&wait.id, Decision::answer(json!({ "seat": "12C" }))).unwrap();
    let answer = agent.resume(restored(&run)).await.unwrap();
    assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "booked");
    assert_eq!(received.count("tools/call"), 4);
}

#[tokio::test]
async fn hostile_servers_are_bounded() {
    // A password in a form is declined without asking anybody.
    let (server, received) = newest(|params| match params.get("inputResponses") {
        None => required(json!({ "a": form("Log in", "password") }), "s"),
        Some(_) => complete("fine"),
    });
    let connected = server.connect().await.unwrap();
    let tools = connected.tools().await.unwrap();
    assert_eq!(agent(tools.clone()).ask("Book").await.unwrap().text(), "Booked.");
    assert_eq!(received.all("tools/call").remove(1)["params"]["inputResponses"]["a"]["action"], "decline");

    // Another question in each round.
    let count = Arc::new(Mutex::new(0));
    let (server, received) = newest(move |_| {
        *count.lock().unwrap() += 1;
        required(json!({ "a": url(&format!("ftp://{}", count.lock().unwrap())) }), "s")
    });
    let connected = server.connect().await.unwrap();
    let tools = connected.tools().await.unwrap();
    let error = super::support::call(&tools, "book", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("asked for input more than 10 times"), "{error}");
    assert_eq!(received.count("tools/call"), 10);

    // Too much state, too many questions.
    for (requests, state, expected) in [
        (json!({}), "x".repeat(1 << 20), "wants to keep more than 32768 bytes"),
        (
            (0..40)
                .map(|number| (number.to_string(), url("https://a")))
                .collect::<serde_json::Map<_, _>>()
                .into(),
            "s".to_owned(),
            "asks for more than 16 things at once",
        ),
    ] {
        let (server, _) = newest(move |_| required(requests.clone(), &state));
        let connected = server.connect().await.unwrap();
        let tools = connected.tools().await.unwrap();
        let error = super::support::call(&tools, "book", json!({})).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

fn task(status: &str, more: Value) -> Reply {
    let mut task = json!({
        "taskId": "t-1",
        "status": status,
        "createdAt": "2026-11-27T00:00:00Z",
        "lastUpdatedAt": "2026-11-27T00:00:00Z",
        "ttlMs": 60_000,
        "pollIntervalMs": 1_000,
    });
    task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Reply::Result(task)
}

/// A server whose calls become tasks, which work once, then ask, and then are complete.
fn with_tasks() -> (McpServer, Received) {
    let polls = Arc::new(Mutex::new((0, false)));
    scripted_server(move |_: &ServerConnection, method, message| match method {
        "initialize" => Reply::Error(-32601, "Method not found"),
        "server/discover" => Reply::Result(json!({
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": { "tools": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } },
            "ttlMs": 0,
            "cacheScope": "private",
        })),
        "tools/list" => Reply::Result(
            json!({ "resultType": "complete", "tools": [tool("book")], "ttlMs": 0, "cacheScope": "private" }),
        ),
        "tools/call" => task("working", json!({ "resultType": "task" })),
        "tasks/update" => {
            polls.lock().unwrap().1 = message["params"]["inputResponses"]["seat"]["action"] == "accept";
            Reply::Result(json!({ "resultType": "complete" }))
        }
        "tasks/get" => {
            let mut polls = polls.lock().unwrap();
            polls.0 += 1;
            let complete = |more: Value| {
                let mut fields = json!({ "resultType": "complete" });
                fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                fields
            };
            match *polls {
                (1, _) => task("working", complete(json!({}))),
                (_, false) => {
                    let asked = json!({ "inputRequests": { "seat": form("Which seat?", "seat") } });
                    task("input_required", complete(asked))
                }
                (_, true) => {
                    let result = json!({ "result": { "content": [{ "type": "text", "text": "booked" }] } });
                    task("completed", complete(result))
                }
            }
        }
        _ => Reply::NoResponse,
    })
}

/// The result of a task is fetched later, by any process; what it asks for meanwhile, a person answers.
#[tokio::test]
async fn a_task_is_fetched_later() {
    let (server, received) = with_tasks();
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
    let mut run = agent.resume(run).await.unwrap_err().into_run();
    let wait = run.waits().remove(0);
    assert_eq!(wait.question().unwrap().text(), "The server `raw` asks: Which seat?");
    run.resolve(&wait.id, Decision::answer(json!({ "seat": "12C" }))).unwrap();
    let mut driver = agent.resume(restored(&run)).start();
    driver.advance().await.unwrap();
    let mut run = driver.into_run();
    let wait = run.waits().remove(0);
    run.tick(wait.deadline.unwrap());
    let answer = agent.resume(restored(&run)).await.unwrap();
    assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "booked");
    assert_eq!((received.count("tools/call"), received.count("tasks/update")), (1, 1));
    let declared =
        &received.all("tools/call")[0]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    assert!(declared["extensions"]["io.modelcontextprotocol/tasks"].is_object(), "{declared}");
}
