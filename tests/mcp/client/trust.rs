//! Trust in servers: approval, name conflicts and secrets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tool_core::run::Decision;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, RunErrorKind, tool, tools};
use tool_mcp::{McpErrorKind, McpServer};

use super::support::{Reply, scripted_server, tool as listed, untrusted_server};

fn annotated(name: &str, annotations: Value) -> Value {
    let mut tool = listed(name);
    tool["annotations"] = annotations;
    tool
}

fn server_with_all_annotations() -> McpServer {
    untrusted_server(|_, method, _| match method {
        "tools/list" => Reply::Result(json!({ "tools": [
            { "name": "plain", "inputSchema": { "type": "object" } },
            annotated("empty", json!({})),
            annotated("reads", json!({ "readOnlyHint": true })),
            annotated("searches", json!({ "readOnlyHint": true, "openWorldHint": true })),
            annotated("contradicts", json!({ "readOnlyHint": true, "destructiveHint": true })),
            annotated("adds", json!({ "destructiveHint": false, "openWorldHint": false })),
            annotated("sends", json!({ "destructiveHint": false })),
            annotated("sets", json!({ "destructiveHint": false, "idempotentHint": true, "openWorldHint": true })),
            annotated("destroys", json!({ "destructiveHint": true, "openWorldHint": false })),
        ] })),
        _ => Reply::Default,
    })
    .0
}

type Configure = fn(McpServer) -> McpServer;

/// All that a server states about its tools may be false.
#[tokio::test]
async fn every_tool_needs_approval_unless_the_author_trusts_it() {
    let all = ["plain", "empty", "reads", "searches", "contradicts", "adds", "sends", "sets", "destroys"];
    let without = |names: &[&str]| -> Vec<String> {
        all.iter().filter(|name| !names.contains(name)).map(|name| (*name).to_owned()).collect()
    };
    let (trusted, repeatable) = (["reads", "adds"], ["reads", "searches", "sets"]);
    // The tools that run without approval, and those whose interrupted calls may be repeated.
    let table: [(Configure, &[&str], &[&str]); 7] = [
        (|server| server, &[], &[]),
        (|server| server.approved(["reads", "destroys", "unknown"]), &["reads", "destroys"], &[]),
        (|server| server.needs_approval(|tool| tool.name() != "adds"), &["adds"], &[]),
        (McpServer::trust_annotations, &trusted, &repeatable),
        (|server| server.trust_annotations().approved(["sends"]), &["reads", "adds", "sends"], &repeatable),
        (|server| server.needs_approval(|_| true).trust_annotations(), &[], &repeatable),
        (McpServer::trusted, &all, &repeatable),
    ];
    for (index, (configure, unasked, repeatable)) in table.into_iter().enumerate() {
        let tools = configure(server_with_all_annotations()).connect().await.unwrap();
        let set = tools.tools().await.unwrap();
        let names = |is: fn(&tool_core::model::ToolPolicy) -> bool| -> Vec<String> {
            let definitions = set.definitions().iter().filter(|tool| is(tool.policy()));
            definitions.map(|tool| tool.name().to_owned()).collect()
        };
        let asked = without(unasked);
        assert_eq!(names(|policy| policy.needs_approval), asked, "{index}");
        let listed = tools.listed_tools().await.unwrap();
        let asked_for: Vec<_> =
            listed.iter().filter(|tool| tool.needs_approval()).map(|tool| tool.name()).collect();
        assert_eq!(asked_for, asked, "{index}");
        assert_eq!(names(|policy| policy.at_most_once), without(repeatable), "{index}");
        assert!(names(|policy| policy.pure).is_empty(), "{index}");
    }

    let model = ScriptedModel::new().calls("reads", "{}").says("Done.");
    let tools = server_with_all_annotations().connect().await.unwrap();
    let agent = Agent::builder(model).tool_provider(tools).build().unwrap();
    let error = agent.ask("Go").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
}

/// The error of a call that waits names the cause and the way out.
/// What a person has approved is the tool with all that the server has stated about it. Icons and `_meta` can change.
#[tokio::test]
async fn an_approval_holds_for_what_the_server_has_stated() {
    for (member, value, is_approved) in [
        ("title", json!("Pays"), false),
        ("annotations", json!({ "readOnlyHint": false }), false),
        ("outputSchema", json!({ "type": "object", "properties": { "paid": { "type": "boolean" } } }), false),
        ("description", json!("Pays"), false),
        ("_meta", json!({ "version": 2 }), true),
    ] {
        let lists = AtomicUsize::new(0);
        let (server, received) = untrusted_server(move |_, method, _| match method {
            "tools/list" => {
                let mut listed = listed("echo");
                if lists.fetch_add(1, Ordering::SeqCst) > 0 {
                    listed[member] = value.clone();
                }
                Reply::Result(json!({ "tools": [listed] }))
            }
            _ => Reply::Default,
        });
        let agent = async |model: ScriptedModel| {
            let tools = server.clone().connect().await.unwrap().tools().await.unwrap();
            Agent::builder(model).tools(tools).build().unwrap()
        };
        let model = ScriptedModel::new().calls("echo", r#"{"text": "Hi"}"#);
        let mut run = agent(model).await.ask("Echo").await.unwrap_err().into_run();
        let wait = run.waits().remove(0);
        run.resolve(&wait.id, Decision::approve()).unwrap();
        let answered = agent(ScriptedModel::new().says("Done.")).await.resume(run).await;
        assert_eq!(answered.is_ok(), is_approved, "{member}");
        assert_eq!(received.count("tools/call"), usize::from(is_approved), "{member}");
        if let Err(error) = answered {
            assert!(matches!(error.kind(), RunErrorKind::Waiting), "{error}");
        }
    }
}

#[tokio::test]
async fn a_waiting_call_states_why_it_needs_approval() {
    let table: [(Configure, &str, &str); 5] = [
        (
            |server| server,
            "reads",
            "the MCP server `notes` states that `reads` is harmless, but is not trusted: use `McpServer::approved([\"reads\"])` or \
             `McpServer::trust_annotations`",
        ),
        (
            |server| server,
            "plain",
            "the MCP server `notes` does not state that `plain` is harmless: if it is, use `McpServer::approved([\"plain\"])`",
        ),
        (
            McpServer::trust_annotations,
            "destroys",
            "the MCP server `notes` does not state that `destroys` is harmless: if it is, use \
             `McpServer::approved([\"destroys\"])`",
        ),
        (
            |server| server.needs_approval(|_| true),
            "reads",
            "the rule `McpServer::needs_approval` of the MCP server `notes` asks for approval of `reads`: change it, or use \
             `approved([\"reads\"])`",
        ),
        // By the name that the server gives the tool.
        (
            |server| server,
            "notes_sends",
            "the MCP server `notes` does not state that `sends` is harmless: if it is, use `McpServer::approved([\"sends\"])`",
        ),
    ];
    for (configure, name, expected) in table {
        let model = ScriptedModel::new().calls(name, "{}").says("Done.");
        let tools = configure(server_with_all_annotations().name("notes")).connect().await.unwrap();
        let prefix = if name.starts_with("notes_") { "notes_" } else { "" };
        let agent = Agent::builder(model).tool_provider(tools.prefix(prefix)).build().unwrap();
        let error = agent.ask("Go").await.unwrap_err();
        let head = format!(
            "calls await approval: `{name}`; store `into_run()`, call `resolve` for each of `waits()`, and \
             `resume` the run; "
        );
        assert_eq!(error.to_string(), head.clone() + expected);
        // It is found again for a run that was stored meanwhile.
        let run = serde_json::from_str(&serde_json::to_string(error.run()).unwrap()).unwrap();
        assert_eq!(agent.resume(run).await.unwrap_err().to_string(), head + expected);
    }
}

#[tokio::test]
async fn the_server_reports_a_tool_that_no_longer_exists() {
    let listings = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&listings);
    let (server, _) = scripted_server(move |_, method, request| match method {
        "tools/list" => {
            counter.fetch_add(1, Ordering::SeqCst);
            Reply::Default
        }
        "tools/call" if request["params"]["name"] == "echo" => Reply::Error(-32602, "Unknown tool: echo"),
        _ => Reply::Default,
    });
    let model = ScriptedModel::new().calls("echo", "{}").says("It is gone.");
    let tools = server.connect().await.unwrap();
    let agent = Agent::builder(model).tool_provider(tools).build().unwrap();
    let answer = agent.ask("Go").await.unwrap();
    let error = answer.tool_executions()[0].outcome().unwrap_err().to_string();
    assert!(error.contains("rejected the call of `echo`: Unknown tool"), "{error}");
    assert_eq!(listings.load(Ordering::SeqCst), 1, "the tools are not listed again");
}

#[tool("Echoes")]
fn echo() {}

#[tokio::test]
async fn a_name_conflict_names_both_servers() {
    let server = |name: &str| scripted_server(|_, _, _| Reply::Default).0.name(name);
    let files = server("files").connect().await.unwrap();
    let notes = server("notes").connect().await.unwrap();
    let expected = "two tools are named `echo`: one of the MCP server `files`, one of the MCP server `notes`; \
                    rename one of them, or remove it, or give all tools of one origin a `prefix`";
    let union = files.tools().await.unwrap().union(notes.tools().await.unwrap());
    assert_eq!(union.unwrap_err().to_string(), expected);

    let agent = |notes| {
        let model = ScriptedModel::new().calls("notes_echo", "{}").says("Done.");
        Agent::builder(model).tool_provider(files.clone()).tool_provider(notes).build().unwrap()
    };
    // In a run, neither server has the name.
    let answer = agent(notes.clone()).ask("Go").await.unwrap();
    let error = answer.tool_executions()[0].outcome().unwrap_err();
    assert_eq!(error.to_string(), "there is no tool `notes_echo`; there are no tools");
    let answer = agent(notes.prefix("notes_")).ask("Go").await.unwrap();
    assert!(answer.tool_executions()[0].outcome().is_ok());

    let error = tools![echo].union(files.tools().await.unwrap()).unwrap_err().to_string();
    assert!(error.contains("trust.rs:") && error.contains("one of the MCP server `files`"), "{error}");
    // This also holds for renamed tools.
    let renamed = files.prefix("x_").tools().await.unwrap().rename("x_echo", "echo").unwrap();
    let error = tools![echo].union(renamed).unwrap_err().to_string();
    assert!(error.contains("one of the MCP server `files`"), "{error}");
}

#[tokio::test]
async fn reports_invalid_configuration() {
    let table = [
        (McpServer::http("not a url"), "invalid MCP server URL"),
        (McpServer::http("ftp://example.org"), "invalid MCP server URL"),
        (
            McpServer::http("http://127.0.0.1:1/mcp").env("A", "b"),
            "`env` requires a server created with `McpServer::stdio`",
        ),
        (
            McpServer::stdio("x").header("A", "b"),
            "headers and tokens require a server created with `McpServer::http`",
        ),
        (
            McpServer::stdio("x").bearer_token("b"),
            "headers and tokens require a server created with `McpServer::http`",
        ),
        (McpServer::http("http://127.0.0.1:1/mcp").header("A\n", "b"), "invalid name or value of a header"),
    ];
    for (server, expected) in table {
        let error = server.optional().connect().await.unwrap_err();
        assert_eq!(error.kind(), McpErrorKind::Config);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn debug_output_contains_no_secrets() {
    let server =
        McpServer::http("https://user:secret-1@example.org/mcp?key=secret-2").bearer_token("secret-3");
    let process = McpServer::stdio("x").arg("secret-4").env("A", "secret-5");
    let shown = format!("{server:?} {process:?}");
    assert_eq!(shown, r#"McpServer { name: "example.org", .. } McpServer { name: "x", .. }"#);
}
