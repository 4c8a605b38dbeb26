//! The client against real servers, which `tests/mcp/everything` installs.

mod oauth;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tool_core::agent::on_approval;
use tool_core::run::{Decision, Run};
use tool_core::testing::ScriptedModel;
use tool_core::tool::ToolErrorKind;
use tool_core::{Agent, Event, ToolCall, ToolContext, ToolError, ToolOutput, ToolSet};
use tool_mcp::{McpServer, McpTools};

/// Returns the directory in which the servers are installed.
fn installed_modules() -> PathBuf {
    let directory = std::env::var_os("MCP_COUNTERPARTS");
    let directory = directory.expect("`tests/mcp/everything` sets MCP_COUNTERPARTS");
    Path::new(&directory).join("node_modules")
}

fn script(modules: &Path, server: &str) -> PathBuf {
    modules.join("@modelcontextprotocol").join(server).join("dist/index.js")
}

fn node(modules: &Path) -> PathBuf {
    modules.join(".bin/node")
}

async fn call(set: &ToolSet, name: &str, arguments: Value) -> Result<ToolOutput, ToolError> {
    set.call(&ToolCall::new("call_1", name, arguments.to_string()), &ToolContext::new()).await
}

/// Starts the server over HTTP. It is killed when the child is dropped.
async fn start_http_server(modules: &Path) -> (String, Child) {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let mut command = Command::new(node(modules));
    command.arg(script(modules, "server-everything")).arg("streamableHttp").env("PORT", port.to_string());
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true).spawn().unwrap();
    until_listening(&mut child).await;
    (format!("http://127.0.0.1:{port}/mcp"), child)
}

/// Waits until a server says that it listens.
async fn until_listening(child: &mut Child) {
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let listening = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains("listening") {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(120), listening).await.expect("the server does not listen");
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
}

/// Calls each tool that needs no other capability of the client.
async fn call_all_tools(tools: McpTools) {
    assert!(tools.problems().await.unwrap().is_empty());
    assert!(tools.instructions().is_some() && tools.info().unwrap().server_info.is_some());
    let set = tools.tools().await.unwrap();
    assert!(set.len() >= 12, "{set:?}");

    let table = [
        ("echo", json!({ "message": "hello" }), "Echo: hello"),
        ("get-sum", json!({ "a": 2, "b": 40 }), "42"),
        ("get-annotated-message", json!({ "messageType": "success" }), "Operation completed successfully"),
        ("get-resource-links", json!({ "count": 2 }), "[a link to the resource demo://"),
        (
            "get-resource-reference",
            json!({ "resourceType": "Text", "resourceId": 1 }),
            "[the resource demo://",
        ),
        ("get-structured-content", json!({ "location": "Chicago" }), "temperature"),
        ("get-tiny-image", json!({}), "Here's the image you requested"),
        ("get-env", json!({}), "PATH"),
        ("toggle-simulated-logging", json!({}), "Started simulated"),
        ("toggle-simulated-logging", json!({}), "Stopped simulated"),
        (
            "trigger-long-running-operation",
            json!({ "duration": 1, "steps": 2 }),
            "Long running operation completed",
        ),
    ];
    for (name, arguments, expected) in table {
        let output = call(&set, name, arguments).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(output.to_string().contains(expected), "{name}: {output}");
        match name {
            "get-tiny-image" => assert_eq!(output.content().images().count(), 1),
            "get-structured-content" => assert!(output.data().unwrap()["structuredContent"].is_object()),
            _ => {}
        }
    }
    let error = call(&set, "get-sum", json!({ "a": "two", "b": 40 })).await.unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::InvalidArguments, "{error}");
    let error =
        call(&set, "get-resource-reference", json!({ "resourceType": "Text", "resourceId": -1 })).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::Failed, "{error}");
    assert_eq!(error.to_string(), "Invalid resourceId: -1. Must be a finite positive integer.");

    // Progress is reported as events of the agent.
    let model = ScriptedModel::new()
        .calls("trigger-long-running-operation", r#"{"duration": 1, "steps": 4}"#)
        .says("Done.");
    let agent = Agent::builder(model).tool_provider(tools).build().unwrap();
    let mut events = agent.ask("Go").stream();
    let mut reports = Vec::new();
    while let Some(event) = events.next().await {
        if let Event::CallProgress { progress, .. } = event.unwrap() {
            reports.push((progress.done, progress.total));
        }
    }
    assert_eq!(reports.last(), Some(&(Some(4), Some(4))), "{reports:?}");
}

#[tokio::test]
#[ignore = "needs servers that `tests/mcp/everything` installs"]
async fn calls_all_tools_over_stdio() {
    let modules = installed_modules();
    let server = McpServer::stdio(node(&modules)).arg(script(&modules, "server-everything")).trusted();
    call_all_tools(server.connect().await.unwrap()).await;
}

#[tokio::test]
#[ignore = "needs servers that `tests/mcp/everything` installs"]
async fn calls_all_tools_over_http() {
    let modules = installed_modules();
    let (url, _child) = start_http_server(&modules).await;
    call_all_tools(McpServer::http(url).trusted().connect().await.unwrap()).await;
}

/// Calls the tools that ask the user while their calls are open, or need a page first. Their server lists them to clients that can be asked.
async fn answer_questions(server: McpServer) {
    let tools = server.name("everything").question_timeout(Duration::from_secs(600)).connect().await.unwrap();
    let is_listed = async || tools.tools().await.unwrap().get("trigger-url-elicitation").is_some();
    super::client::support::wait_until("the tools are listed", is_listed).await;
    let page = "you to open a page: ";
    let (pay, prerequisite) = (
        format!("{page}Pay\nhttps://pay.example/7"),
        format!("{page}Open this link to satisfy the prerequisite"),
    );
    let (url, form) = (json!({ "url": "https://pay.example/7", "message": "Pay" }), "Please provide inputs");
    let with_error = json!({ "url": "https://pay.example/7", "message": "Pay", "errorPath": true });
    let person = json!({ "name": "Ada", "integer": 7, "titledMultipleSelectEnum": ["fish-2"] });
    let table = [
        ("trigger-elicitation-request", json!({}), vec![(form, person)], "- Favorite Integer: 7"),
        ("trigger-elicitation-request", json!({}), vec![(form, Value::Null)], "User declined to provide"),
        ("trigger-url-elicitation", url.clone(), vec![(&*pay, json!(true))], "User completed the URL"),
        ("trigger-url-elicitation", url, vec![(&*pay, json!(false))], "User declined to open the URL"),
        (
            "trigger-url-elicitation",
            with_error,
            vec![(&*prerequisite, json!(true)), (&*pay, json!(true))],
            "User completed the URL",
        ),
    ];
    for (name, arguments, questions, expected) in table {
        let model = ScriptedModel::new().calls(name, arguments.to_string()).says("Done.");
        let agent = Agent::builder(model).tool_provider(tools.clone()).build().unwrap();
        let mut outcome = agent.ask("Go").await;
        for (text, answer) in questions {
            let mut run = outcome.unwrap_err().into_run();
            let wait = run.waits().remove(0);
            let question = wait.question().unwrap().text();
            assert!(
                question.starts_with("The server `everything` asks") && question.contains(text),
                "{question}"
            );
            let decision = if answer.is_null() { Decision::decline() } else { Decision::answer(answer) };
            run.resolve(&wait.id, decision).unwrap();
            outcome = agent.resume(run).await;
        }
        let answer = outcome.unwrap();
        let output =
            answer.tool_executions()[0].outcome().map_or_else(ToString::to_string, ToString::to_string);
        assert!(output.contains(expected), "{name}: {output}");
    }
}

#[tokio::test]
#[ignore = "needs servers that `tests/mcp/everything` installs"]
async fn a_server_asks_while_calls_are_open() {
    let modules = installed_modules();
    let server = McpServer::stdio(node(&modules)).arg(script(&modules, "server-everything"));
    answer_questions(server.trusted()).await;
    let (url, _child) = start_http_server(&modules).await;
    answer_questions(McpServer::http(url).trusted()).await;
}

#[tokio::test]
#[ignore = "needs servers that `tests/mcp/everything` installs"]
async fn approves_and_denies_writes_to_a_filesystem() {
    let modules = installed_modules();
    let directory = std::env::temp_dir().join(format!("mcp-files-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("a.txt"), "hello").unwrap();
    let server = McpServer::stdio(node(&modules))
        .arg(script(&modules, "server-filesystem"))
        .arg(&directory)
        .name("files")
        .approved(["read_text_file"]);
    let tools = server.connect().await.unwrap().prefix("fs_");
    let path = |name: &str| directory.join(name).display().to_string();
    let write = |name: &str| json!({ "path": path(name), "content": "written" }).to_string();
    let model = ScriptedModel::new()
        .calls("fs_read_text_file", json!({ "path": path("a.txt") }).to_string())
        .calls_all([("fs_write_file", &*write("b.txt")), ("fs_write_file", &*write("c.txt"))])
        .says("Done.");
    let requested = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&requested);
    let approver = move |call: &ToolCall| {
        recorded.lock().unwrap().push(call.name.clone());
        if call.arguments.contains("b.txt") { Decision::approve() } else { Decision::deny("not that one") }
    };
    let agent = Agent::builder(model).tool_provider(tools).decider(on_approval(approver)).build().unwrap();
    let answer = agent.ask("Write the files").await.unwrap();
    assert_eq!(answer.tool_executions()[0].outcome().unwrap().to_string(), "hello");
    assert_eq!(*requested.lock().unwrap(), ["fs_write_file", "fs_write_file"], "reading needs no approval");
    assert_eq!(std::fs::read_to_string(directory.join("b.txt")).unwrap(), "written");
    assert!(!directory.join("c.txt").exists());
    std::fs::remove_dir_all(&directory).unwrap();
}

/// Books at a server that asks. Another process takes the answer, with another process of the server, unless that is older and asks while
/// the call is open.
async fn answer_elsewhere(server: McpServer, is_older: bool) {
    let tools = server.clone().connect().await.unwrap();
    assert_eq!(tools.info().unwrap().protocol_version.has_initialize(), is_older);
    let first = tools.clone();
    let model = ScriptedModel::new().calls("book", r#"{"flight": "OS 87"}"#);
    let agent = Agent::builder(model).tool_provider(tools).build().unwrap();
    let error = agent.ask("Book").await.unwrap_err();
    let mut run: Run = serde_json::from_str(&serde_json::to_string(error.run()).unwrap()).unwrap();
    let wait = run.waits().remove(0);
    assert_eq!(wait.question().unwrap().text(), "The server `seats` asks: Which seat?");
    run.resolve(&wait.id, Decision::answer(json!({ "seat": "12C" }))).unwrap();
    let tools = if is_older { first } else { server.connect().await.unwrap() };
    let model = ScriptedModel::new().says("Done.");
    let answer = Agent::builder(model).tool_provider(tools).build().unwrap().resume(run).await.unwrap();
    let outcome = answer.tool_executions()[0].outcome().map_or_else(ToString::to_string, ToString::to_string);
    assert_eq!(outcome, "12C on OS 87");
}

#[tokio::test]
#[ignore = "needs servers that `tests/mcp/everything` installs"]
async fn a_server_of_the_typescript_sdk_asks() {
    let modules = installed_modules();
    let server = McpServer::stdio(node(&modules)).arg(modules.join("typescript.mjs")).arg("serve");
    answer_elsewhere(server.name("seats").trusted(), false).await;
}

/// One of the newest revision seals its state with a key of its process, so that the call is sent again without it.
#[tokio::test]
#[ignore = "needs the SDK that `tests/mcp/server/python/run` installs"]
async fn a_server_of_the_python_sdk_asks() {
    let python = std::env::var_os("MCP_PYTHON").expect("`tests/mcp/server/python/run` sets MCP_PYTHON");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/mcp/server/python/seats.py");
    let server = McpServer::stdio(python).arg(script).name("seats").trust_annotations().trusted();
    answer_elsewhere(server.clone(), false).await;
    answer_elsewhere(server.arg("older").question_timeout(Duration::from_secs(600)), true).await;
}

/// One of FastMCP speaks both revisions, and asks in the older way alone.
#[tokio::test]
#[ignore = "needs the package that `tests/mcp/server/python/run` installs"]
async fn a_server_of_fastmcp_in_python_asks() {
    let python = std::env::var_os("MCP_PYTHON").expect("`tests/mcp/server/python/run` sets MCP_PYTHON");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/mcp/server/python/seats_fastmcp.py");
    let server = McpServer::stdio(python).arg(script).name("seats").trusted();
    let tools = server.clone().connect().await.unwrap().tools().await.unwrap();
    let call = ToolCall::new("call_1", "book", r#"{"flight": "OS 87"}"#);
    let error = tools.call(&call, &ToolContext::new()).await.unwrap_err().to_string();
    assert!(error.contains("connect to it with `McpServer::older_revision`"), "{error}");
    answer_elsewhere(server.older_revision().question_timeout(Duration::from_secs(600)), true).await;
}
