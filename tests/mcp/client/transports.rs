//! Child processes and HTTP, against servers of the SDK and misbehaving ones.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use axum::routing::any;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tool_mcp::{McpError, McpErrorKind, McpServer, McpTools};

use super::support::{call, initialize_result, text_result, tool, tool_names, wait_until};
use tests::support::mcp_served::Tools;

/// The program of the small server.
pub(super) const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpart");

fn process_server() -> McpServer {
    McpServer::stdio(PROGRAM).arg("mcp-served")
}

/// Returns the ids of the child processes.
fn child_ids() -> Vec<u32> {
    let children_of = |task: std::io::Result<std::fs::DirEntry>| {
        let children = std::fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default();
        children.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<u32>>()
    };
    std::fs::read_dir("/proc/self/task").into_iter().flatten().flat_map(children_of).collect()
}

pub(super) fn is_running(pid: &str) -> bool {
    std::fs::exists(format!("/proc/{pid}")).unwrap()
}

#[tokio::test]
async fn a_process_inherits_only_named_variables() {
    let tools =
        process_server().env("GIVEN", "a secret").pass_env("CARGO_MANIFEST_DIR").pass_env("NOT_SET_AT_ALL");
    let set = tools.connect().await.unwrap().tools().await.unwrap();
    let names = call(&set, "environment", json!({})).await.unwrap().to_string();
    let names: Vec<_> = names.split(' ').collect();
    assert!(names.contains(&"GIVEN") && names.contains(&"CARGO_MANIFEST_DIR"), "{names:?}");
    let known = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "GIVEN", "CARGO_MANIFEST_DIR"];
    assert!(names.iter().all(|name| known.contains(name)), "{names:?}");
    assert!(
        std::env::var_os("CARGO").is_some(),
        "this process has a variable that the child does not inherit"
    );
}

#[tokio::test]
async fn passes_stderr_to_the_hook() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&lines);
    let server = process_server().on_stderr(move |line| recorded.lock().unwrap().push(line.to_owned()));
    let _tools = server.connect().await.unwrap();
    wait_until("the line arrives", async || *lines.lock().unwrap() == ["ready"]).await;
}

/// Waits for a shell script to write its process id to the file.
pub(super) async fn read_pid(file: &std::path::Path) -> String {
    wait_until("the process runs", async || {
        std::fs::read_to_string(file).is_ok_and(|pid| pid.ends_with('\n'))
    })
    .await;
    std::fs::read_to_string(file).unwrap().trim().to_owned()
}

#[tokio::test]
async fn a_process_ends_when_its_tools_are_dropped() {
    let directory = std::env::temp_dir().join(format!("mcp-processes-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    // One exits when its input is closed, and one has to be killed.
    let obedient = format!("echo $$ > {0}/obedient; exec {PROGRAM} mcp-served", directory.display());
    let stubborn =
        format!("echo $$ > {0}/stubborn; {PROGRAM} mcp-served; exec sleep 600", directory.display());
    let shell = |script: &str| McpServer::stdio("sh").args(["-c", script]);

    let obeys = async {
        let tools = shell(&obedient).connect().await.unwrap();
        let pid = read_pid(&directory.join("obedient")).await;
        assert!(is_running(&pid) && child_ids().contains(&pid.parse().unwrap()));
        let set = tools.tools().await.unwrap();
        drop(tools);
        assert_eq!(call(&set, "echo", json!({ "text": "hello" })).await.unwrap().to_string(), "hello");
        drop(set);
        wait_until("the obedient process has exited and is not a zombie", async || !is_running(&pid)).await;
    };
    let is_stubborn = async {
        let tools = shell(&stubborn).connect().await.unwrap();
        let pid = read_pid(&directory.join("stubborn")).await;
        drop(tools);
        wait_until("the stubborn process was killed and is not a zombie", async || !is_running(&pid)).await;
    };
    tokio::join!(obeys, is_stubborn);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test]
async fn a_process_that_is_not_a_server_is_killed() {
    let file = std::env::temp_dir().join(format!("mcp-silent-{}", std::process::id()));
    let script = format!("echo $$ > {}; exec sleep 600", file.display());
    let connecting = tokio::spawn(McpServer::stdio("sh").args(["-c", &script]).connect());
    let pid = read_pid(&file).await;
    tokio::time::pause();
    let error = connecting.await.unwrap().unwrap_err();
    tokio::time::resume();
    assert_eq!(error.kind(), McpErrorKind::Timeout, "{error}");
    wait_until("the process was killed and is not a zombie", async || !is_running(&pid)).await;
    std::fs::remove_file(&file).unwrap();
}

#[tokio::test]
async fn a_process_that_exits_during_a_call_is_restarted() {
    let tools = process_server().trusted().connect().await.unwrap();
    let set = tools.tools().await.unwrap();
    let error = call(&set, "die", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("disconnected while its tool `die` was running"), "{error}");
    wait_until("the server is connected again", async || tools.last_error().is_none()).await;
    assert_eq!(call(&set, "echo", json!({ "text": "hello" })).await.unwrap().to_string(), "hello");
}

/// Serves the router until the test ends and returns its URL.
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

/// Exercises the tools of the small server, over any transport.
async fn exercise(tools: McpTools) {
    assert_eq!(tools.instructions().as_deref(), Some("Be gentle."));
    let set = tools.tools().await.unwrap();
    let expected = ["echo", "wait", "steps", "fail", "environment", "grow", "die", "delete"];
    assert_eq!(tool_names(&set), expected);
    assert_eq!(call(&set, "echo", json!({ "text": "hello" })).await.unwrap().to_string(), "hello");
    assert_eq!(call(&set, "steps", json!({ "steps": 3 })).await.unwrap().to_string(), "all steps");
    assert_eq!(call(&set, "fail", json!({})).await.unwrap_err().to_string(), "it is broken");
    call(&set, "grow", json!({})).await.unwrap();
    wait_until("the new tool is listed", async || tools.tools().await.unwrap().get("grown").is_some()).await;
}

#[tokio::test]
async fn uses_a_server_of_the_sdk_as_a_process() {
    exercise(process_server().connect().await.unwrap()).await;
}

#[tokio::test]
async fn uses_a_server_of_the_sdk_over_http() {
    let (url, _) = sdk_server(|config| config).await;
    exercise(McpServer::http(url).connect().await.unwrap()).await;
}

#[tokio::test]
async fn uses_a_server_of_the_sdk_over_http_without_sessions() {
    let (url, _) = sdk_server(|config| config.with_legacy_session_mode(false).with_json_response(true)).await;
    let set = McpServer::http(url).connect().await.unwrap().tools().await.unwrap();
    assert_eq!(call(&set, "echo", json!({ "text": "hello" })).await.unwrap().to_string(), "hello");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_times_out_over_http_is_cancelled_at_the_server() {
    let (url, served) = sdk_server(|config| config).await;
    // Shorter than the interval of the SDK's keep-alive messages, whose clock is not paused.
    let server = McpServer::http(url).record_messages().timeout(Duration::from_secs(10));
    let set = server.connect().await.unwrap().tools().await.unwrap();
    let error = call(&set, "wait", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("did not respond"), "{error}");
    wait_until("the call is cancelled", async || served.was_cancelled.load(Ordering::SeqCst)).await;
}

/// Starts an HTTP server that handles each request with the function.
pub(super) async fn http_server(
    handle: impl Fn(&str, &Value, &Requests) -> Response<Body> + Clone + Send + Sync + 'static,
) -> (String, Requests) {
    let requests = Requests::default();
    let log = requests.clone();
    let handler = move |request: Request| {
        let (handle, requests) = (handle.clone(), log.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            let message: Value = serde_json::from_slice(&body).unwrap_or_default();
            let method = message["method"].as_str().unwrap_or(head.method.as_str()).to_owned();
            let header = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
            let authorization = header("authorization");
            requests.0.lock().unwrap().push((
                method.clone(),
                authorization,
                header("x-team"),
                header("mcp-session-id"),
            ));
            handle(&method, &message, &requests)
        }
    };
    let url = serve(Router::new().route("/mcp", any(handler.clone())).route("/mcp/", any(handler))).await;
    (format!("{url}/mcp"), requests)
}

pub(super) type Head = (String, Option<String>, Option<String>, Option<String>);

/// The requests that the server received: method, token, team and session.
#[derive(Clone, Default)]
pub(super) struct Requests(pub(super) Arc<Mutex<Vec<Head>>>);

impl Requests {
    pub(super) fn count(&self, method: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|request| request.0 == method).count()
    }
}

pub(super) fn response(kind: &str, body: impl Into<Body>) -> Response<Body> {
    Response::builder().header("content-type", kind).body(body.into()).unwrap()
}

pub(super) fn status(code: u16) -> Response<Body> {
    Response::builder().status(code).body(Body::empty()).unwrap()
}

/// The response of an ordinary server without streams.
pub(super) fn default_response(method: &str, message: &Value) -> Response<Body> {
    let result = match method {
        "initialize" => initialize_result(),
        "tools/list" => json!({ "tools": [tool("echo")] }),
        "tools/call" => text_result("called"),
        // As servers that miss their session.
        "server/discover" => return status(400),
        "GET" | "DELETE" => return status(405),
        _ => return status(202),
    };
    response(
        "application/json",
        json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string(),
    )
}

#[tokio::test]
async fn sends_headers_with_each_request_and_redacts_them_in_errors() {
    let (url, requests) = http_server(|method, message, _| match method {
        "tools/call" => {
            let error =
                json!({ "code": -32000, "message": "Bearer sk-token-123 of team-secret is not valid" });
            response(
                "application/json",
                json!({ "jsonrpc": "2.0", "id": message["id"], "error": error }).to_string(),
            )
        }
        _ => default_response(method, message),
    })
    .await;
    let server = McpServer::http(&url).bearer_token("sk-token-123").header("x-team", "team-secret");
    let tools = server.connect().await.unwrap();
    let set = tools.tools().await.unwrap();
    let error = call(&set, "echo", json!({})).await.unwrap_err();
    assert!(!error.to_string().contains("sk-token") && !error.to_string().contains("team-secret"), "{error}");
    let requests = requests.0.lock().unwrap().clone();
    for (method, token, team, _) in &requests {
        assert_eq!(
            (token.as_deref(), team.as_deref()),
            (Some("Bearer sk-token-123"), Some("team-secret")),
            "{method}"
        );
    }
    assert!(requests.len() >= 4);

    let (url, _) = http_server(|_, _, _| status(401)).await;
    let error = McpServer::http(&url).bearer_token("sk-token-123").connect().await.unwrap_err();
    assert_eq!(error.kind(), McpErrorKind::Unauthorized);
    assert!(error.to_string().contains("bearer_token"), "{error}");
    let (url, _) = http_server(|_, _, _| {
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
async fn follows_redirects_only_within_the_same_host() {
    let (other_host, visits) = http_server(|method, message, _| default_response(method, message)).await;
    for code in [301, 302, 307, 308] {
        let location = other_host.clone();
        let (url, _) = http_server(move |_, _, _| {
            Response::builder().status(code).header("location", &location).body(Body::empty()).unwrap()
        })
        .await;
        let error = McpServer::http(&url).bearer_token("sk-token-123").connect().await.unwrap_err();
        assert!(error.to_string().contains(&code.to_string()), "{error}");
    }
    assert!(visits.0.lock().unwrap().is_empty());

    // Many servers redirect from `/mcp` to `/mcp/`.
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
                default_response(message["method"].as_str().unwrap_or("GET"), &message)
            }),
        );
    let url = format!("{}/mcp", serve(router).await);
    assert_eq!(McpServer::http(url).connect().await.unwrap().tools().await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_expired_session_is_replaced() {
    let (url, requests) = http_server(|method, message, requests| {
        let sessions = requests.count("initialize");
        let current = format!("session-{sessions}");
        let given = requests.0.lock().unwrap().last().unwrap().3.clone();
        let is_expired = requests.count("tools/call") > 0 && sessions == 1;
        match method {
            "initialize" => {
                let mut response = default_response(method, message);
                response.headers_mut().insert("mcp-session-id", current.parse().unwrap());
                response
            }
            "GET" | "DELETE" => status(405),
            _ if is_expired || given != Some(current) => status(404),
            _ => default_response(method, message),
        }
    })
    .await;
    let tools = McpServer::http(&url).connect().await.unwrap();
    let set = tools.tools().await.unwrap();
    assert_eq!(call(&set, "echo", json!({})).await.unwrap().to_string(), "called");
    assert_eq!(requests.count("initialize"), 2);
    // A different server may answer in the new session.
    tools.tools().await.unwrap();
    assert_eq!(requests.count("tools/list"), 2);
}

fn event_stream(chunks: Vec<Result<Vec<u8>, std::io::Error>>) -> Response<Body> {
    response("text/event-stream", Body::from_stream(futures_util::stream::iter(chunks)))
}

/// The error does not wait for the timeout.
#[tokio::test]
async fn an_invalid_response_over_http_fails_immediately() {
    let large = || {
        format!(
            r#"{{"jsonrpc":"2.0","id":ID,"result":{{"content":[{{"type":"text","text":"{}"}}]}}}}"#,
            "x".repeat(17 << 20)
        )
    };
    type Respond = fn(&Value, String) -> Response<Body>;
    let table: [(&str, Respond, &str); 9] = [
        ("garbage", |_, _| response("application/json", "<html>"), "is not a valid protocol message"),
        (
            "garbage of another type",
            |_, _| response("text/html", "<html>"),
            "it is HTML and not a protocol message; check the URL of the server",
        ),
        ("nothing", |_, _| response("application/json", ""), "is not a valid protocol message"),
        ("large", |_, large| response("application/json", large), "is larger than 16777216 bytes"),
        (
            "an error",
            |_, _| Response::builder().status(500).body("oh dear".into()).unwrap(),
            "HTTP 500 Internal Server Error: oh dear",
        ),
        (
            "events of garbage",
            |_, _| event_stream(vec![Ok(b"data: {\"jsonrpc\n\n".to_vec())]),
            "is not a valid protocol message",
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
            "disconnected while its tool",
        ),
        (
            "a stream that breaks",
            |_, _| event_stream(vec![Ok(b": nothing\n\n".to_vec()), Err(std::io::Error::other("broken"))]),
            "disconnected while its tool",
        ),
    ];
    for (case, respond, expected) in table {
        let (url, _) = http_server(move |method, message, _| match method {
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
                respond(message, large)
            }
            _ => default_response(method, message),
        })
        .await;
        let server = McpServer::http(&url).timeout(Duration::from_secs(120));
        let set = server.connect().await.unwrap().tools().await.unwrap();
        let error = call(&set, "echo", json!({ "text": "bad" })).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{case}: {error}");
        assert!(error.failure().unwrap().is::<McpError>());
        // The session still works.
        assert_eq!(call(&set, "echo", json!({})).await.unwrap().to_string(), "called", "{case}");
    }
}

#[tokio::test]
async fn skips_only_the_tool_that_is_nested_too_deeply() {
    for kind in ["application/json", "text/event-stream"] {
        let (url, _) = http_server(move |method, message, _| match method {
            "tools/list" => {
                let deep = format!("{}1{}", "[".repeat(1000), "]".repeat(1000));
                let list = format!(
                    r#"{{"jsonrpc":"2.0","id":{},"result":{{"tools":[{},{{"name":"deep","inputSchema":{{"type":"object","x":{deep}}}}}]}}}}"#,
                    message["id"],
                    tool("echo")
                );
                if kind == "application/json" { response(kind, list) } else { response(kind, format!("data: {list}\n\n")) }
            }
            _ => default_response(method, message),
        })
        .await;
        let tools = McpServer::http(&url).connect().await.unwrap();
        assert_eq!(tool_names(&tools.tools().await.unwrap()), ["echo"]);
        let problem = tools.problems().await.unwrap()[0].to_string();
        assert!(
            problem.contains("`deep` is skipped: its schema cannot be used: it is nested deeper"),
            "{problem}"
        );
    }
}

#[tokio::test]
async fn uses_an_http_server_again_after_a_restart() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let handler = |request: Request| async move {
        let body = axum::body::to_bytes(request.into_body(), usize::MAX).await.unwrap();
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        default_response(message["method"].as_str().unwrap_or("GET"), &message)
    };
    let router = Router::new().route("/mcp", any(handler));
    let serving = tokio::spawn(axum::serve(listener, router.clone()).into_future());
    let tools = McpServer::http(format!("http://{address}/mcp")).connect().await.unwrap();
    let set = tools.tools().await.unwrap();
    call(&set, "echo", json!({})).await.unwrap();
    serving.abort();
    let _ = serving.await;
    wait_until("the server is unavailable", async || call(&set, "echo", json!({})).await.is_err()).await;
    let error = call(&set, "echo", json!({})).await.unwrap_err().to_string();
    assert!(error.contains("the MCP server `127.0.0.1`"), "{error}");
    let listener = TcpListener::bind(address).await.unwrap();
    tokio::spawn(axum::serve(listener, router).into_future());
    wait_until("the server is used again", async || call(&set, "echo", json!({})).await.is_ok()).await;
}
