//! Servers of the older revisions that ask during a call, which stays open meanwhile.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Response};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tool_core::run::Decision;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, RunErrorKind, ToolSet};
use tool_mcp::McpServer;

use super::asking::{agent, form, restored, url};
use super::support::{
    Received, Reply, ServerConnection, call, initialize_result, tool, untrusted_server, wait_until,
};

const LIMIT: Duration = Duration::from_secs(600);

/// Waits for the client's response to a request of the server.
async fn answer_to(received: &Received, id: &str) -> Value {
    loop {
        if let Some(answer) = received.responses().into_iter().find(|response| response["id"] == id) {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A server that asks these questions during a call, one after the other, and returns the answers.
fn asking(questions: Vec<Value>) -> (McpServer, Received) {
    let log = Arc::new(OnceLock::<Received>::new());
    let seen = Arc::clone(&log);
    let (server, received) =
        untrusted_server(move |connection: &ServerConnection, method, message| match method {
            "initialize" => Reply::Result(initialize_result()),
            "tools/list" => Reply::Result(json!({ "tools": [tool("book")] })),
            "tools/call" => {
                let (connection, questions, id) =
                    (connection.clone(), questions.clone(), message["id"].clone());
                let received = seen.get().unwrap().clone();
                tokio::spawn(async move {
                    let mut answers = Vec::new();
                    for (number, mut question) in questions.into_iter().enumerate() {
                        let asked = format!("{}-{id}-{number}", connection.number);
                        (question["jsonrpc"], question["id"]) = ("2.0".into(), asked.clone().into());
                        connection.send_line(question.to_string());
                        let answer = answer_to(&received, &asked).await;
                        answers.push(answer.get("result").unwrap_or(&answer["error"]["code"]).clone());
                    }
                    let content = json!([{ "type": "text", "text": json!(answers).to_string() }]);
                    let result = json!({ "jsonrpc": "2.0", "id": id, "result": { "content": content } });
                    connection.send_line(result.to_string());
                });
                Reply::NoResponse
            }
            _ => Reply::Default,
        });
    let _ = log.set(received.clone());
    (server.approved(["book"]), received)
}

async fn tools(server: &McpServer) -> (tool_mcp::McpTools, ToolSet) {
    let connected = server.clone().connect().await.unwrap();
    let tools = connected.tools().await.unwrap();
    (connected, tools)
}

fn accepted(seat: &str) -> Value {
    json!({ "action": "accept", "content": { "seat": seat } })
}

/// Each question is one wait of the run, and the call is sent once, even if its tool is `at_most_once`.
#[tokio::test]
async fn a_call_stays_open_while_its_user_is_asked() {
    let seat = form("Which seat?", "seat");
    let (server, received) = asking(vec![seat.clone(), seat, url("https://pay.example/7")]);
    let server = server.question_timeout(LIMIT);
    let (_connected, tools) = tools(&server).await;
    let agent = agent(tools);
    let mut run = agent.ask("Book").await.unwrap_err().into_run();
    for (expected, answer) in [
        ("The server `raw` asks: Which seat?", json!({ "seat": "12C" })),
        ("The server `raw` asks: Which seat?", json!({ "seat": "14A" })),
        ("The server `raw` asks you to open a page: Confirm the payment\nhttps://pay.example/7", json!(true)),
    ] {
        run = restored(&run);
        let wait = run.waits().remove(0);
        assert!(wait.question().unwrap().text().starts_with(expected), "{}", wait.question().unwrap().text());
        run.resolve(&wait.id, Decision::answer(answer)).unwrap();
        let mut driver = agent.resume(run).start();
        while driver.advance().await.unwrap_or(false) {}
        run = driver.into_run();
    }
    let expected = json!([accepted("12C"), accepted("14A"), { "action": "accept" }]).to_string();
    assert_eq!(run.tool_executions()[0].output().unwrap().to_string(), expected);
    assert_eq!((received.count("tools/call"), received.count("notifications/cancelled")), (1, 0));
    let declared = received.find("initialize").unwrap()["params"]["capabilities"].clone();
    assert_eq!(declared, json!({ "elicitation": { "form": {}, "url": {} } }));
}

/// In another process there is no open call: it is sent again, and the questions that were answered get their answers.
#[tokio::test]
async fn a_call_that_is_no_longer_open_is_sent_again_unless_at_most_once() {
    for is_repeatable in [true, false] {
        let (server, received) = asking(vec![form("Which seat?", "seat"), form("Which meal?", "meal")]);
        let server = server.question_timeout(LIMIT);
        let server = if is_repeatable { server.trust_annotations() } else { server };
        let first = tools(&server).await;
        let mut run = agent(first.1.clone()).ask("Book").await.unwrap_err().into_run();
        let wait = run.waits().remove(0);
        run.resolve(&wait.id, Decision::answer(json!({ "seat": "12C" }))).unwrap();
        let second = tools(&server).await;
        let agent = agent(second.1.clone());
        let mut driver = agent.resume(restored(&run)).start();
        let _ = driver.advance().await;
        let mut run = driver.into_run();
        if is_repeatable {
            let wait = run.waits().remove(0);
            assert_eq!(wait.question().unwrap().text(), "The server `raw` asks: Which meal?");
            run.resolve(&wait.id, Decision::decline()).unwrap();
            let mut driver = agent.resume(restored(&run)).start();
            driver.advance().await.unwrap();
            let output = driver.run().tool_executions()[0].output().unwrap().to_string();
            assert_eq!(output, json!([accepted("12C"), { "action": "decline" }]).to_string());
        } else {
            let error = run.tool_executions()[0].outcome().unwrap_err().to_string();
            assert!(error.contains("the call may or may not have taken effect"), "{error}");
        }
        assert_eq!(received.count("tools/call"), if is_repeatable { 2 } else { 1 });
    }
}

/// A person who answers too late finds what the server made of that.
#[tokio::test(start_paused = true)]
async fn a_question_is_cancelled_at_its_limit() {
    let (server, received) = asking(vec![form("Which seat?", "seat")]);
    let server = server.question_timeout(Duration::from_secs(60)).record_messages();
    let (_connected, tools) = tools(&server).await;
    let agent = agent(tools);
    let mut run = agent.ask("Book").await.unwrap_err().into_run();
    wait_until("the server reads that nobody answers", async || !received.responses().is_empty()).await;
    let wait = run.waits().remove(0);
    run.resolve(&wait.id, Decision::answer(json!({ "seat": "12C" }))).unwrap();
    let answer = agent.resume(run).await.unwrap();
    assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), r#"[{"action":"cancel"}]"#);
    assert_eq!(received.count("tools/call"), 1);
}

/// A question is cancelled where nobody can answer, or where it could be that of another call; without a limit, servers may not ask.
#[tokio::test]
async fn questions_that_reach_nobody_are_cancelled_at_once() {
    let cancelled = r#"[{"action":"cancel"}]"#;
    let (server, _) = asking(vec![form("Which seat?", "seat")]);
    let (_connected, set) = tools(&server.clone().question_timeout(LIMIT)).await;
    assert_eq!(call(&set, "book", json!({})).await.unwrap().to_string(), cancelled);
    let (_connected, set) = tools(&server).await;
    assert_eq!(call(&set, "book", json!({})).await.unwrap().to_string(), "[-32601]");

    let (ask, received) = (Arc::new(tokio::sync::Notify::new()), Arc::new(OnceLock::<Received>::new()));
    let (asks, log) = (Arc::clone(&ask), Arc::clone(&received));
    let (server, seen) = untrusted_server(
        move |connection: &ServerConnection, method, message| match method {
            "tools/list" => Reply::Result(json!({ "tools": [tool("book")] })),
            "tools/call" => {
                if log.get().unwrap().count("tools/call") == 2 {
                    let question = form("Which seat?", "seat");
                    let question = json!({ "jsonrpc": "2.0", "id": "q", "method": question["method"], "params": question["params"] });
                    connection.send_line(question.to_string());
                }
                let (connection, id, asks, log) =
                    (connection.clone(), message["id"].clone(), Arc::clone(&asks), Arc::clone(&log));
                tokio::spawn(async move {
                    asks.notified().await;
                    let text = log.get().unwrap().responses()[0]["result"]["action"].to_string();
                    let result = super::support::text_result(&text);
                    connection.send_line(json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string());
                });
                Reply::NoResponse
            }
            _ => Reply::Default,
        },
    );
    let _ = received.set(seen.clone());
    let (_connected, set) = tools(&server.question_timeout(LIMIT).trusted()).await;
    let agents = [agent(set.clone()), agent(set)];
    let running = agents.map(|agent| tokio::spawn(async move { agent.ask("Book").await }));
    wait_until("the question is answered", async || !seen.responses().is_empty()).await;
    ask.notify_waiters();
    for running in running {
        let answer = running.await.unwrap().unwrap();
        assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), r#""cancel""#);
    }
}

/// A question can be meant for a call that timed out, until its late reply or for as long as a question may wait. Other calls are then asked
/// for again.
#[tokio::test(start_paused = true)]
async fn a_call_that_timed_out_does_not_silence_the_server() {
    for (is_late, wait, is_asked) in
        [(false, Duration::ZERO, false), (true, Duration::ZERO, true), (false, LIMIT, true)]
    {
        let first = OnceLock::new();
        let (server, received) =
            untrusted_server(move |connection: &ServerConnection, method, message| match method {
                "tools/list" => Reply::Result(json!({ "tools": [tool("book")] })),
                "tools/call" if first.set(message["id"].clone()).is_ok() => Reply::NoResponse,
                "tools/call" => {
                    if is_late {
                        let id = first.get();
                        let late = json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } });
                        connection.send_line(late.to_string());
                    }
                    let mut question = form("Which seat?", "seat");
                    (question["jsonrpc"], question["id"]) = ("2.0".into(), "q".into());
                    connection.send_line(question.to_string());
                    Reply::NoResponse
                }
                _ => Reply::Default,
            });
        let server = server.approved(["book"]).record_messages().question_timeout(LIMIT);
        let (_connected, tools) = tools(&server).await;
        let error = call(&tools, "book", json!({})).await.unwrap_err();
        assert!(error.to_string().contains("did not respond to the call of `book`"), "{error}");
        tokio::time::sleep(wait).await;
        let asked = tokio::spawn(async move { agent(tools).ask("Book").await });
        if is_asked {
            let waiting = asked.await.unwrap().unwrap_err();
            assert!(matches!(waiting.kind(), RunErrorKind::Waiting), "{waiting}");
        } else {
            wait_until("the question is cancelled", async || !received.responses().is_empty()).await;
            assert_eq!(received.responses()[0]["result"]["action"], "cancel");
            asked.abort();
        }
    }
}

/// A server that needs a page first gets the call again once a person has consented, without any data.
#[tokio::test]
async fn a_page_is_opened_before_the_call_is_sent_again() {
    for is_accepted in [true, false] {
        let (server, received) = untrusted_server(|_, method, message| match method {
            "tools/list" => Reply::Result(json!({ "tools": [tool("book")] })),
            "tools/call" => {
                let page = json!({ "mode": "url", "message": "Connect", "url": "https://a.example/1", "elicitationId": "e" });
                let error = json!({ "code": -32042, "message": "a page is needed", "data": { "elicitations": [page] } });
                Reply::Raw(json!({ "jsonrpc": "2.0", "id": message["id"], "error": error }).to_string())
            }
            _ => Reply::Default,
        });
        let (_connected, tools) = tools(&server.approved(["book"])).await;
        let agent = agent(tools);
        let mut run = agent.ask("Book").await.unwrap_err().into_run();
        let rounds = if is_accepted { 2 } else { 1 };
        for _ in 0..rounds {
            let wait = run.waits().remove(0);
            let text = "The server `raw` asks you to open a page: Connect\nhttps://a.example/1";
            assert!(wait.question().unwrap().text().starts_with(text));
            run.resolve(&wait.id, Decision::answer(is_accepted)).unwrap();
            let mut driver = agent.resume(restored(&run)).start();
            let _ = driver.advance().await;
            run = driver.into_run();
        }
        assert_eq!(received.count("tools/call"), if is_accepted { 3 } else { 1 });
        for call in received.all("tools/call") {
            assert_eq!(call["params"].get("inputResponses"), None);
        }
        if !is_accepted {
            let error = run.tool_executions()[0].outcome().unwrap_err().to_string();
            assert_eq!(error, "the user has not opened the page that the server needs");
        }
    }
}

/// The connection of a user is not closed for another one while a call of a waiting run is open.
#[tokio::test]
async fn an_open_call_keeps_the_connection_of_its_user() {
    let (server, received) = asking(vec![form("Which seat?", "seat")]);
    let pool = server.question_timeout(LIMIT).per_user().max_users(1);
    let ask = |user: &'static str| {
        let model = ScriptedModel::new().calls("book", "{}").says("Done.");
        let agent = Agent::builder(model).tool_provider(pool.clone()).build().unwrap();
        async move { (agent.ask("Book").user(user).await.unwrap_err(), agent) }
    };
    let (waiting, agent) = ask("ada").await;
    let (refused, _) = ask("grace").await;
    assert!(refused.to_string().contains("is in use by 1 users"), "{refused}");
    let mut run = waiting.into_run();
    run.resolve(run.waits()[0].id.clone(), Decision::answer(json!({ "seat": "12C" }))).unwrap();
    let answer = agent.resume(run).await.unwrap();
    let expected = json!([accepted("12C")]).to_string();
    assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), expected);
    assert_eq!(received.count("tools/call"), 1);
    assert!(matches!(ask("grace").await.0.kind(), RunErrorKind::Waiting));
}

/// A server of an older revision can ask on a stream of its own. That stream is open before a call is sent.
#[tokio::test]
async fn no_call_is_sent_before_its_questions_can_arrive() {
    let (called, is_early) = (Arc::new(Notify::new()), Arc::new(OnceLock::new()));
    let (seen, early) = (Arc::clone(&called), Arc::clone(&is_early));
    let respond = move |method: Method, body: String| {
        let (called, is_early) = (Arc::clone(&seen), Arc::clone(&early));
        async move {
            let response = Response::builder().header("mcp-session-id", "one");
            if method == Method::GET {
                let call = tokio::time::timeout(Duration::from_millis(300), called.notified()).await;
                is_early.set(call.is_ok()).unwrap();
                return response.status(405).body(Body::empty()).unwrap();
            }
            let message: Value = serde_json::from_str(&body).unwrap_or_default();
            let result = match message["method"].as_str().unwrap_or_default() {
                "initialize" => initialize_result(),
                "tools/list" => json!({ "tools": [tool("book")] }),
                "tools/call" => {
                    called.notify_one();
                    json!({ "content": [] })
                }
                "server/discover" => return response.status(400).body(Body::empty()).unwrap(),
                _ => return response.status(202).body(Body::empty()).unwrap(),
            };
            let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string();
            response.header("content-type", "application/json").body(Body::from(body)).unwrap()
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let router = axum::Router::new().route("/mcp", axum::routing::any(respond));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let server = McpServer::http(url).question_timeout(LIMIT).trusted();
    let tools = server.connect().await.unwrap().tools().await.unwrap();
    call(&tools, "book", json!({})).await.unwrap();
    assert_eq!(is_early.get(), Some(&false));
}
