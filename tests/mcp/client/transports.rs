//! Child processes and HTTP, with a server on the SDK's side for servers and with hostile ones.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use axum::routing::any;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tool_mcp::{McpError, McpServer, McpTools};

use super::support::{call, initialized, names, text, tool, until};
use tests::support::mcp_served::Tools;

/// The small server as a program.
const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpart");

fn process() -> McpServer {
    McpServer::stdio(PROGRAM).arg("mcp-served")
}

/// The children of this process, by their ids.
fn children() -> Vec<u32> {
    let of_task = |task: std::io::Result<std::fs::DirEntry>| {
        let children = std::fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default();
        children.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<u32>>()
    };
    std::fs::read_dir("/proc/self/task").into_iter().flatten().flat_map(of_task).collect()
}

fn runs(pid: &str) -> bool {
    std::fs::exists(format!("/proc/{pid}")).unwrap()
}

#[tokio::test]
async fn a_process_gets_the_variables_that_are_named() {
    let tools = process().env("TOLD", "a secret").pass_env("CARGO_MANIFEST_DIR").pass_env("NOT_SET_AT_ALL");
    let set = tools.connect().await.unwrap().tools().await.unwrap();
    let names = call(&set, "environment", json!({})).await.unwrap().to_string();
    let names: Vec<_> = names.split(' ').collect();
    assert!(names.contains(&"TOLD") && names.contains(&"CARGO_MANIFEST_DIR"), "{names:?}");
    let known = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "TOLD", "CARGO_MANIFEST_DIR"];
    assert!(names.iter().all(|name| known.contains(name)), "{names:?}");
    assert!(std::env::var_os("CARGO").is_some(), "there is something that it does not get");
}

#[tokio::test]
async fn what_a_process_writes_to_stderr_goes_to_the_hook() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&lines);
    let server = process().on_stderr(move |line| kept.lock().unwrap().push(line.to_owned()));
    let _tools = server.connect().await.unwrap();
    until("the line is there", async || *lines.lock().unwrap() == ["ready"]).await;
}

/// The id of the process that a shell script writes to the file.
async fn pid_in(file: &std::path::Path) -> String {
    until("the process runs", async || std::fs::read_to_string(file).is_ok_and(|pid| pid.ends_with('\n')))
        .await;
    std::fs::read_to_string(file).unwrap().trim().to_owned()
}

#[tokio::test]
async fn a_process_ends_when_nobody_wants_it_any_more() {
    let directory = std::env::temp_dir().join(format!("mcp-processes-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    // One that ends with its input, one that has to be killed, and one that never was a server.
    let obedient = format!("echo $$ > {0}/obedient; exec {PROGRAM} mcp-served", directory.display());
    let stubborn =
        format!("echo $$ > {0}/stubborn; {PROGRAM} mcp-served; exec sleep 600", directory.display());
    let silent = format!("echo $$ > {0}/silent; exec sleep 600", directory.display());
    let shell = |script: &str| McpServer::stdio("sh").args(["-c", script]);

    let tools = shell(&obedient).connect().await.unwrap();
    let pid = pid_in(&directory.join("obedient")).await;
    assert!(runs(&pid) && children().contains(&pid.parse().unwrap()));
    let set = tools.tools().await.unwrap();
    drop(tools);
    assert_eq!(call(&set, "echo", json!({ "text": "hello" })).await.unwrap().to_string(), "hello");
    drop(set);
    until("the obedient one has ended, and is no zombie", async || !runs(&pid)).await;

    let tools = shell(&stubborn).connect().await.unwrap();
    let pid = pid_in(&directory.join("stubborn")).await;
    drop(tools);
    until("the stubborn one was killed, and is no zombie", async || !runs(&pid)).await;

    let begun = Instant::now();
    let error = shell(&silent).connect_timeout(Duration::from_millis(500)).connect().await.unwrap_err();
    assert!(error.is_timed_out() && begun.elapsed() < Duration::from_secs(10), "{error}");
    let pid = pid_in(&directory.join("silent")).await;
    until("the silent one was killed, and is no zombie", async || !runs(&pid)).await;
    std::fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test]
async fn a_process_that_dies_in_a_call_is_started_again() {
    let tools = process().trusted().connect().await.unwrap();
    let set = tools.tools().await.unwrap();
    let begun = Instant::now();
    let error = call(&set, "die", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("went away while its tool `die` ran"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    until("it is there again", async || tools.down().is_none()).await;
    assert_eq!(call(&set, "echo", json!({ "text": "hello" })).await.unwrap().to_string(), "hello");
}

/// Serves until the test ends, and tells where.
async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

async fn sdk_server(
    config: impl FnOnce(StreamableHttpServerConfig) -> StreamableHttpServerConfig,
) -> (String, Tools) {
    let tools = Tools::default();
    let served = tools.clone();
    let config = config(StreamableHttpServerConfig::default());
    let service = StreamableHttpService::new(
        move || Ok(served.clone()),
        Arc::new(LocalSessionManager::default()),
        config,
    );
    (format!("{}/mcp", serve(Router::new().nest_service("/mcp", service)).await), tools)
}

/// The same over both: the SDK's own server.
async fn exercise(tools: McpTools) {
    assert_eq!(tools.instructions().as_deref(), Some("Be gentle."));
    let set = tools.tools().await.unwrap();
    let expected = ["echo", "wait", "steps", "fail", "environment", "grow", "die", "delete"];
    assert_eq!(names(&set), expected);
    assert_eq!(call(&set, "echo", json!({ "text": "hello" })).await.unwrap().to_string(), "hello");
    assert_eq!(call(&set, "steps", json!({ "steps": 3 })).await.unwrap().to_string(), "all steps");
    assert_eq!(call(&set, "fail", json!({})).await.unwrap_err().to_string(), "it is broken");
    call(&set, "grow", json!({})).await.unwrap();
    until("the new tool is there", async || tools.tools().await.unwrap().get("grown").is_some()).await;
}

#[tokio::test]
async fn the_sdks_server_is_served_by_as_a_process() {
    exercise(process().connect().await.unwrap()).await;
}

#[tokio::test]
async fn the_sdks_server_is_served_by_over_http() {
    let (url, _) = sdk_server(|config| config).await;
    exercise(McpServer::http(url).connect().await.unwrap()).await;
}

#[tokio::test]
async fn the_sdks_server_is_served_by_over_http_without_sessions() {
    let (url, _) = sdk_server(|config| config.with_legacy_session_mode(false).with_json_response(true)).await;
    let set = McpServer::http(url).connect().await.unwrap().tools().await.unwrap();
    assert_eq!(call(&set, "echo", json!({ "text": "hello" })).await.unwrap().to_string(), "hello");
}

#[tokio::test]
async fn a_call_over_http_that_is_given_up_is_cancelled_at_the_server() {
    let (url, served) = sdk_server(|config| config).await;
    let server = McpServer::http(url).timeout(Duration::from_millis(500));
    let set = server.connect().await.unwrap().tools().await.unwrap();
    assert!(call(&set, "wait", json!({})).await.unwrap_err().to_string().contains("has not answered"));
    until("the server knows", async || served.was_cancelled.load(Ordering::SeqCst)).await;
}

/// A server by hand: it answers each request with what the function makes of it.
async fn by_hand(
    answer: impl Fn(&str, &Value, &Seen) -> Response<Body> + Clone + Send + Sync + 'static,
) -> (String, Seen) {
    let seen = Seen::default();
    let kept = seen.clone();
    let handler = move |request: Request| {
        let (answer, seen) = (answer.clone(), kept.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            let message: Value = serde_json::from_slice(&body).unwrap_or_default();
            let method = message["method"].as_str().unwrap_or(head.method.as_str()).to_owned();
            let header = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
            let authorization = header("authorization");
            seen.0.lock().unwrap().push((
                method.clone(),
                authorization,
                header("x-team"),
                header("mcp-session-id"),
            ));
            answer(&method, &message, &seen)
        }
    };
    let url = serve(Router::new().route("/mcp", any(handler.clone())).route("/mcp/", any(handler))).await;
    (format!("{url}/mcp"), seen)
}

type Head = (String, Option<String>, Option<String>, Option<String>);

/// What the server by hand was asked: method, token, team, session.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<Head>>>);

impl Seen {
    fn count(&self, method: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|seen| seen.0 == method).count()
    }
}

fn response(kind: &str, body: impl Into<Body>) -> Response<Body> {
    Response::builder().header("content-type", kind).body(body.into()).unwrap()
}

fn status(code: u16) -> Response<Body> {
    Response::builder().status(code).body(Body::empty()).unwrap()
}

/// As a server without streams would answer.
fn usual(method: &str, message: &Value) -> Response<Body> {
    let result = match method {
        "initialize" => initialized(),
        "tools/list" => json!({ "tools": [tool("echo")] }),
        "tools/call" => text("called"),
        "GET" | "DELETE" => return status(405),
        _ => return status(202),
    };
    response(
        "application/json",
        json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string(),
    )
}

#[tokio::test]
async fn headers_and_the_token_are_sent_with_each_request_and_shown_nowhere() {
    let (url, seen) = by_hand(|method, message, _| match method {
        "tools/call" => {
            let error = json!({ "code": -32000, "message": "Bearer sk-token-123 of team-secret is no good" });
            response(
                "application/json",
                json!({ "jsonrpc": "2.0", "id": message["id"], "error": error }).to_string(),
            )
        }
        _ => usual(method, message),
    })
    .await;
    let server = McpServer::http(&url).bearer_token("sk-token-123").header("x-team", "team-secret");
    let tools = server.connect().await.unwrap();
    let set = tools.tools().await.unwrap();
    let error = call(&set, "echo", json!({})).await.unwrap_err();
    assert!(!error.to_string().contains("sk-token") && !error.to_string().contains("team-secret"), "{error}");
    let seen = seen.0.lock().unwrap().clone();
    for (method, token, team, _) in &seen {
        assert_eq!(
            (token.as_deref(), team.as_deref()),
            (Some("Bearer sk-token-123"), Some("team-secret")),
            "{method}"
        );
    }
    assert!(seen.len() >= 4);

    let (url, _) = by_hand(|_, _, _| status(401)).await;
    let error = McpServer::http(&url).bearer_token("sk-token-123").connect().await.unwrap_err();
    assert!(error.is_unauthorized() && error.to_string().contains("bearer_token"), "{error}");
    let (url, _) = by_hand(|_, _, _| {
        let body = "no entry for sk-token-123";
        Response::builder().status(403).body(body.into()).unwrap()
    })
    .await;
    let error = McpServer::http(&url).bearer_token("sk-token-123").connect().await.unwrap_err().to_string();
    assert!(error.contains("403") && error.contains("no entry for […]"), "{error}");
    let error = McpServer::http("http://127.0.0.1:1/mcp?key=sk-1").connect().await.unwrap_err().to_string();
    assert!(error.contains("cannot be reached") && !error.contains("sk-1"), "{error}");
}

#[tokio::test]
async fn redirects_lead_to_the_same_host_only() {
    let (elsewhere, visits) = by_hand(|method, message, _| usual(method, message)).await;
    for code in [301, 302, 307, 308] {
        let there = elsewhere.clone();
        let (url, _) = by_hand(move |_, _, _| {
            Response::builder().status(code).header("location", &there).body(Body::empty()).unwrap()
        })
        .await;
        let error = McpServer::http(&url).bearer_token("sk-token-123").connect().await.unwrap_err();
        assert!(error.to_string().contains(&code.to_string()), "{error}");
    }
    assert!(visits.0.lock().unwrap().is_empty());

    // Many servers lead from `/mcp` to `/mcp/`.
    let router = Router::new()
        .route(
            "/mcp",
            any(|| async {
                Response::builder().status(307).header("location", "/mcp/").body(Body::empty()).unwrap()
            }),
        )
        .route(
            "/mcp/",
            any(|request: Request| async move {
                let body = axum::body::to_bytes(request.into_body(), usize::MAX).await.unwrap();
                let message: Value = serde_json::from_slice(&body).unwrap_or_default();
                usual(message["method"].as_str().unwrap_or("GET"), &message)
            }),
        );
    let url = format!("{}/mcp", serve(router).await);
    assert_eq!(McpServer::http(url).connect().await.unwrap().tools().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_session_that_is_gone_is_begun_anew() {
    let (url, seen) = by_hand(|method, message, seen| {
        let sessions = seen.count("initialize");
        let current = format!("session-{sessions}");
        let given = seen.0.lock().unwrap().last().unwrap().3.clone();
        let is_gone = seen.count("tools/call") > 0 && sessions == 1;
        match method {
            "initialize" => {
                let mut response = usual(method, message);
                response.headers_mut().insert("mcp-session-id", current.parse().unwrap());
                response
            }
            "GET" | "DELETE" => status(405),
            _ if is_gone || given != Some(current) => status(404),
            _ => usual(method, message),
        }
    })
    .await;
    let tools = McpServer::http(&url).connect().await.unwrap();
    let set = tools.tools().await.unwrap();
    assert_eq!(call(&set, "echo", json!({})).await.unwrap().to_string(), "called");
    assert_eq!(seen.count("initialize"), 2);
    // It may be another server now.
    tools.tools().await.unwrap();
    assert_eq!(seen.count("tools/list"), 2);
}

fn event_stream(chunks: Vec<Result<Vec<u8>, std::io::Error>>) -> Response<Body> {
    response("text/event-stream", Body::from_stream(futures_util::stream::iter(chunks)))
}

/// What answers to a call, and what is said of it: at once, not after the timeout.
#[tokio::test]
async fn an_answer_over_http_that_cannot_be_read_fails_at_once() {
    let large = || {
        format!(
            r#"{{"jsonrpc":"2.0","id":ID,"result":{{"content":[{{"type":"text","text":"{}"}}]}}}}"#,
            "x".repeat(17 << 20)
        )
    };
    type Answer = fn(&Value, String) -> Response<Body>;
    let table: [(&str, Answer, &str); 9] = [
        ("garbage", |_, _| response("application/json", "<html>"), "is no message of the protocol"),
        ("garbage of another type", |_, _| response("text/html", "<html>"), "is no message of the protocol"),
        ("nothing", |_, _| response("application/json", ""), "is no message of the protocol"),
        ("large", |_, large| response("application/json", large), "is larger than 16777216 bytes"),
        (
            "an error",
            |_, _| Response::builder().status(500).body("oh dear".into()).unwrap(),
            "HTTP 500 Internal Server Error: oh dear",
        ),
        (
            "events of garbage",
            |_, _| event_stream(vec![Ok(b"data: {\"jsonrpc\n\n".to_vec())]),
            "is no message of the protocol",
        ),
        (
            "a large event",
            |_, large| {
                event_stream(vec![Ok(b"data: ".to_vec()), Ok(large.into_bytes()), Ok(b"\n\n".to_vec())])
            },
            "is larger than 16777216 bytes",
        ),
        (
            "a stream that ends",
            |_, _| event_stream(vec![Ok(b": nothing\n\n".to_vec())]),
            "went away while its tool",
        ),
        (
            "a stream that breaks",
            |_, _| event_stream(vec![Ok(b": nothing\n\n".to_vec()), Err(std::io::Error::other("broken"))]),
            "went away while its tool",
        ),
    ];
    for (what, answer, expected) in table {
        let (url, _) = by_hand(move |method, message, _| match method {
            "tools/list" => {
                let mut tool = tool("echo");
                tool["annotations"] = json!({});
                let list = json!({ "jsonrpc": "2.0", "id": message["id"], "result": { "tools": [tool] } });
                response("application/json", list.to_string())
            }
            "tools/call" if message["params"]["arguments"]["text"] == "bad" => {
                let large = if expected.contains("larger") {
                    large().replace("ID", &message["id"].to_string())
                } else {
                    String::new()
                };
                answer(message, large)
            }
            _ => usual(method, message),
        })
        .await;
        let server = McpServer::http(&url).timeout(Duration::from_secs(25));
        let set = server.connect().await.unwrap().tools().await.unwrap();
        let begun = Instant::now();
        let error = call(&set, "echo", json!({ "text": "bad" })).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{what}: {error}");
        assert!(error.failure().unwrap().is::<McpError>());
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        // The session goes on.
        assert_eq!(call(&set, "echo", json!({})).await.unwrap().to_string(), "called", "{what}");
    }
}

#[tokio::test]
async fn over_http_too_a_tool_that_is_too_deep_is_left_out_alone() {
    for kind in ["application/json", "text/event-stream"] {
        let (url, _) = by_hand(move |method, message, _| match method {
            "tools/list" => {
                let deep = format!("{}1{}", "[".repeat(1000), "]".repeat(1000));
                let list = format!(
                    r#"{{"jsonrpc":"2.0","id":{},"result":{{"tools":[{},{{"name":"deep","inputSchema":{{"type":"object","x":{deep}}}}}]}}}}"#,
                    message["id"],
                    tool("echo")
                );
                if kind == "application/json" { response(kind, list) } else { response(kind, format!("data: {list}\n\n")) }
            }
            _ => usual(method, message),
        })
        .await;
        let tools = McpServer::http(&url).connect().await.unwrap();
        assert_eq!(names(&tools.tools().await.unwrap()), ["echo"]);
        let problem = tools.problems().await.unwrap()[0].to_string();
        assert!(problem.contains("`deep` is left out: its schema is nested deeper"), "{problem}");
    }
}

#[tokio::test]
async fn a_server_over_http_that_comes_back_is_used_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let handler = |request: Request| async move {
        let body = axum::body::to_bytes(request.into_body(), usize::MAX).await.unwrap();
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        usual(message["method"].as_str().unwrap_or("GET"), &message)
    };
    let router = Router::new().route("/mcp", any(handler));
    let serving = tokio::spawn(axum::serve(listener, router.clone()).into_future());
    let tools = McpServer::http(format!("http://{address}/mcp")).connect().await.unwrap();
    let set = tools.tools().await.unwrap();
    call(&set, "echo", json!({})).await.unwrap();
    serving.abort();
    let _ = serving.await;
    until("it is down", async || call(&set, "echo", json!({})).await.is_err()).await;
    let error = call(&set, "echo", json!({})).await.unwrap_err().to_string();
    assert!(error.contains("the MCP server `127.0.0.1`"), "{error}");
    let listener = TcpListener::bind(address).await.unwrap();
    tokio::spawn(axum::serve(listener, router).into_future());
    until("it is used again", async || call(&set, "echo", json!({})).await.is_ok()).await;
}
