//! Calls of servers that ask for input: the call waits for the answers, and is sent again with them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tool_core::agent::on_question;
use tool_core::run::{Decision, Run, WaitReason};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, RunErrorKind};
use tool_mcp::McpServer;

use super::support::{Received, Reply, ServerConnection, scripted_server, tool, untrusted_server};
use super::transports::{Requests, http_server, response};

/// A server that speaks the newest protocol alone, and answers calls by this function.
fn newest(answer: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> (McpServer, Received) {
    scripted_server(move |_: &ServerConnection, method, message| newest_reply(method, message, &answer))
}

fn newest_reply(method: &str, message: &Value, answer: &dyn Fn(&Value) -> Reply) -> Reply {
    match method {
        "initialize" => Reply::Error(-32601, "Method not found"),
        "server/discover" => Reply::Result(discovered(json!({ "tools": {} }))),
        "tools/list" => Reply::Result(listed()),
        "tools/call" => answer(&message["params"]),
        _ => Reply::NoResponse,
    }
}

/// The URL of a server of the newest protocol that answers calls by this function.
async fn newest_over_http(
    answer: impl Fn(&Value) -> Value + Clone + Send + Sync + 'static,
) -> (String, Requests) {
    http_server(move |method, message, _| {
        let (member, body) = match method {
            "initialize" => ("error", json!({ "code": -32601, "message": "Method not found" })),
            "server/discover" => ("result", discovered(json!({ "tools": {} }))),
            "tools/list" => ("result", listed()),
            "tools/call" => ("result", answer(&message["params"])),
            "tasks/get" => ("result", super::tasks::task("working", json!({}))),
            _ => return super::transports::status(202),
        };
        let body = json!({ "jsonrpc": "2.0", "id": message["id"], member: body });
        response("application/json", body.to_string())
    })
    .await
}

pub(super) fn discovered(capabilities: Value) -> Value {
    json!({
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": capabilities,
        "ttlMs": 0,
        "cacheScope": "private",
    })
}

pub(super) fn listed() -> Value {
    json!({ "resultType": "complete", "tools": [tool("book")], "ttlMs": 0, "cacheScope": "private" })
}

pub(super) fn form(message: &str, property: &str) -> Value {
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

pub(super) fn url(url: &str) -> Value {
    let params = json!({ "mode": "url", "message": "Confirm the payment", "url": url });
    json!({ "method": "elicitation/create", "params": params })
}

pub(super) fn required(requests: Value, state: &str) -> Reply {
    Reply::Result(json!({ "resultType": "input_required", "inputRequests": requests, "requestState": state }))
}

fn complete(text: &str) -> Reply {
    Reply::Result(json!({ "resultType": "complete", "content": [{ "type": "text", "text": text }] }))
}

pub(super) fn agent(tools: tool_core::ToolSet) -> Agent {
    let model = ScriptedModel::new().calls("book", r#"{"text": "a seat"}"#).says("Booked.");
    Agent::builder(model).tools(tools).build().unwrap()
}

pub(super) fn restored(run: &Run) -> Run {
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
    let mut wait = run.waits().remove(0);
    assert_eq!(wait.question().unwrap().text(), "The server `raw` asks: Which seat?");
    // One that does not fit is asked again.
    for (answer, problem) in [
        (json!({ "seat": "A" }), "`answer.seat`: expected a string of at least 2 characters, got \"A\""),
        (json!({}), "`seat` is missing, expected a string of at least 2 characters"),
    ] {
        run.resolve(&wait.id, Decision::answer(answer)).unwrap();
        run = restored(agent.resume(run).await.unwrap_err().run());
        wait = run.waits().remove(0);
        let question = wait.question().unwrap();
        assert_eq!(question.text(), "The server `raw` asks: Which seat?");
        assert_eq!(question.problem(), Some(problem));
    }
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

/// A person who answers with a text need not know the name of the one value that a form asks for.
#[tokio::test]
async fn a_plain_answer_fits_a_form_with_one_member() {
    for (member, text, expected) in [
        (json!({ "type": "string", "minLength": 2 }), "window", json!("window")),
        (json!({ "type": "string" }), "12", json!("12")),
        (json!({ "type": "integer" }), "12", json!(12)),
        (json!({ "type": "boolean" }), "true", json!(true)),
        (json!({ "type": "string", "enum": ["aisle", "window"] }), "window", json!("window")),
        (json!({ "type": "string", "oneOf": [{ "const": "w", "title": "Window" }] }), "Window", json!("w")),
        (json!({ "type": "string" }), r#"{ "seat": "12C" }"#, json!("12C")),
        // A server gets what it asked for, also if it was not written so.
        (json!({ "type": "string" }), r#"{ "seat": 12 }"#, json!("12")),
    ] {
        let mut asked = form("Which seat?", "seat");
        asked["params"]["requestedSchema"]["properties"]["seat"] = member.clone();
        let (server, received) = newest(move |params| match params.get("inputResponses") {
            None => required(json!({ "seat": asked }), "s-1"),
            Some(_) => complete("booked"),
        });
        let tools = server.connect().await.unwrap().tools().await.unwrap();
        let model = ScriptedModel::new().calls("book", "{}").says("Booked.");
        let decider = on_question(move |question| Decision::answer_text(question, text));
        let agent = Agent::builder(model).tools(tools).decider(decider).build().unwrap();
        agent.ask("Book").await.unwrap();
        let answered = received.all("tools/call").remove(1)["params"]["inputResponses"]["seat"].clone();
        let expected = json!({ "action": "accept", "content": { "seat": expected } });
        assert_eq!(answered, expected, "{text} for {member}");
    }
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

/// A tool that is `at_most_once`, as all of a server that is not trusted, is not called again.
#[tokio::test]
async fn an_expired_state_ends_a_call_that_is_not_repeated() {
    let (server, received) = untrusted_server(|_: &ServerConnection, method, message| match method {
        "tools/call" if message["params"].get("requestState").is_some() => {
            Reply::Error(-32602, "Invalid or expired requestState")
        }
        _ => newest_reply(method, message, &|_| {
            required(json!({ "seat": form("Which seat?", "seat") }), "s-1")
        }),
    });
    let tools = server.approved(["book"]).connect().await.unwrap().tools().await.unwrap();
    let agent = agent(tools);
    let run = answer_seat(&agent, agent.ask("Book").await.unwrap_err().into_run(), "12C").await;
    let error = run.tool_executions()[0].outcome().unwrap_err().to_string();
    assert!(error.contains("rejected the call of `book`: Invalid or expired requestState"), "{error}");
    assert_eq!(received.count("tools/call"), 2);
}

/// Answers the question that the run waits for, and continues the run in another process until it waits or ends.
async fn answer_seat(agent: &Agent, mut run: Run, seat: &str) -> Run {
    let wait = run.waits().remove(0);
    assert_eq!(wait.question().unwrap().text(), "The server `raw` asks: Which seat?");
    run.resolve(&wait.id, Decision::answer(json!({ "seat": seat }))).unwrap();
    let mut driver = agent.resume(restored(&run)).start();
    while driver.advance().await.unwrap_or(false) {}
    restored(&driver.into_run())
}

/// A server that asks the same again has not accepted the answer, so the user is asked again. Only a server that has lost its state gets each
/// answer once more.
#[tokio::test]
async fn the_same_question_is_asked_again() {
    let has_expired = AtomicBool::new(false);
    let (server, received) = newest(move |params| {
        let seat = params["inputResponses"]["seat"]["content"]["seat"].as_str();
        match (seat, params["requestState"].as_str()) {
            (Some("14A"), Some("s-1")) if !has_expired.swap(true, Ordering::SeqCst) => {
                Reply::Error(-32602, "Invalid or expired requestState")
            }
            (Some("16F"), _) => complete("booked"),
            (Some("14A"), _) => required(json!({ "seat": form("Which seat?", "seat") }), "s-3"),
            (Some(_), _) => required(json!({ "seat": form("Which seat?", "seat") }), "s-1"),
            (None, _) => required(json!({ "seat": form("Which seat?", "seat") }), "s-0"),
        }
    });
    let tools = server.connect().await.unwrap().tools().await.unwrap();
    let agent = agent(tools);
    let mut run = agent.ask("Book").await.unwrap_err().into_run();
    let mut calls = Vec::new();
    for seat in ["12C", "14A", "16F"] {
        calls.push(received.count("tools/call"));
        run = answer_seat(&agent, run, seat).await;
    }
    calls.push(received.count("tools/call"));
    assert_eq!(run.tool_executions()[0].output().unwrap().to_string(), "booked");
    // After the second answer, the state has expired: both answers are sent again, and the second is not accepted.
    assert_eq!(calls, [1, 2, 6, 7]);
}

/// What a server keeps with the client is as secret as what it has put into it.
#[tokio::test]
async fn the_state_of_a_server_is_shown_to_nobody() {
    const STATE: &str = "state/of \"raw\"";
    let failed = |text: &str| {
        let content = json!([{ "type": "text", "text": text }]);
        Reply::Result(json!({ "resultType": "complete", "isError": true, "content": content }))
    };
    for reply in [
        Reply::Error(-32603, "cannot read state/of \"raw\""),
        failed("cannot read state/of \"raw\""),
        failed("cannot read state%2Fof%20%22raw%22"),
    ] {
        let reply = Mutex::new(Some(reply));
        let (server, _) = newest(move |params| match params.get("requestState") {
            None => required(json!({ "seat": form("Which seat?", "seat") }), STATE),
            Some(_) => reply.lock().unwrap().take().unwrap(),
        });
        let tools = server.connect().await.unwrap().tools().await.unwrap();
        let agent = agent(tools);
        let waiting = agent.ask("Book").await.unwrap_err();
        let shown = format!("{waiting} {waiting:?} {:?} {:?}", waiting.run(), waiting.run().waits());
        let run = answer_seat(&agent, waiting.into_run(), "12C").await;
        let outcome = run.tool_executions()[0].outcome();
        let outcome = outcome.map_or_else(|error| format!("{error} {error:?}"), ToString::to_string);
        assert!(outcome.contains("cannot read […]"), "{outcome}");
        let messages = serde_json::to_string(run.messages()).unwrap();
        for text in [shown, outcome, messages, format!("{run:?}")] {
            assert!(!text.contains("state/of") && !text.contains("state%2Fof"), "{text}");
        }
    }
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
        (json!({}), "x".repeat(10 << 20), "wants to keep more than 32768 bytes"),
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

/// Neither what a server keeps with the client, nor its task, is for another server that has its name now.
#[tokio::test]
async fn state_of_another_server_of_the_same_name_is_not_sent() {
    for first_result in [
        json!({ "resultType": "input_required", "inputRequests": { "seat": form("Which seat?", "seat") }, "requestState": "s-1" }),
        super::tasks::task("working", json!({ "resultType": "task" })),
    ] {
        let (first, _) = newest_over_http(move |_| first_result.clone()).await;
        let (other, received) =
            newest_over_http(|_| json!({ "resultType": "complete", "content": [] })).await;
        let server = |url: String| McpServer::http(url).name("tickets").trusted();
        let connected = server(first).connect().await.unwrap();
        let mut driver = agent(connected.tools().await.unwrap()).ask("Book").start();
        for _ in 0..2 {
            let _ = driver.advance().await;
        }
        let mut run = restored(&driver.into_run());
        let wait = run.waits().remove(0);
        match wait.deadline {
            Some(deadline) => drop(run.tick(deadline)),
            None => run.resolve(&wait.id, Decision::answer(json!({ "seat": "12C" }))).unwrap(),
        }
        let connected = server(other).connect().await.unwrap();
        let tools = connected.tools().await.unwrap();
        let agent = Agent::builder(ScriptedModel::new().says("Sorry.")).tools(tools).build().unwrap();
        let answer = agent.resume(run).await.unwrap();
        let error = answer.tool_executions()[0].outcome().unwrap_err().to_string();
        let expected = "the MCP server `tickets` is another one than that which the call was sent to";
        assert!(error.contains(expected), "{error}");
        let calls = ["tools/call", "tasks/get", "tasks/cancel"].map(|method| received.count(method));
        assert_eq!(calls, [0, 0, 0]);
    }
}
