//! Tools of servers in an agent's run: progress, cancellation, logs and changes of the tools.

use std::sync::{Arc, Mutex};

use serde_json::json;
use tool_core::run::StopReason;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, CancellationToken, Event, RunErrorKind};

use super::support::{Reply, call, initialize_result, scripted_server, text_result, wait_until};

#[tokio::test]
async fn reports_the_progress_of_a_call_as_progress_of_the_run() {
    let (server, _) = scripted_server(|connection, method, request| match method {
        "tools/call" => {
            let token = &request["params"]["_meta"]["progressToken"];
            let steps = [
                json!({ "progressToken": token, "progress": 1, "total": 4, "message": "one" }),
                json!({ "progressToken": token, "progress": 0.5, "total": 1.0 }),
                json!({ "progressToken": token, "progress": 7 }),
                json!({ "progressToken": "unknown", "progress": 8 }),
            ];
            steps.into_iter().for_each(|step| connection.notify("notifications/progress", step));
            Reply::Result(text_result("done"))
        }
        _ => Reply::Default,
    });
    let model = ScriptedModel::new().calls("echo", "{}").says("Done.");
    let tools = server.connect().await.unwrap();
    let agent = Agent::builder(model).tool_provider(tools).build().unwrap();
    let mut reports = Vec::new();
    let mut events = agent.ask("Go").stream();
    while let Some(event) = events.next().await {
        if let Event::CallProgress { progress, .. } = event.unwrap() {
            reports.push((progress.text.clone(), progress.done, progress.total));
        }
    }
    let expected = [
        ("one".to_owned(), Some(1), Some(4)),
        (String::new(), Some(50), Some(100)),
        (String::new(), Some(7), None),
    ];
    assert_eq!(reports, expected);
}

#[tokio::test]
async fn cancelling_a_run_cancels_its_calls_at_the_server() {
    let (server, received) = scripted_server(|_, method, _| match method {
        "tools/call" => Reply::NoResponse,
        _ => Reply::Default,
    });
    let tools = server.connect().await.unwrap();
    let model = ScriptedModel::new().calls_all([("echo", "{}"), ("echo", r#"{"text": "b"}"#)]).says("Never.");
    let agent = Agent::builder(model).tool_provider(tools).build().unwrap();
    let cancellation = CancellationToken::new();
    let run = agent.ask("Go").cancellation_token(cancellation.clone());
    let cancel = async {
        wait_until("both calls have started", async || received.count("tools/call") == 2).await;
        cancellation.cancel();
    };
    let (outcome, ()) = tokio::join!(run.into_future(), cancel);
    let error = outcome.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::Cancelled)), "{error}");
    wait_until("both calls are cancelled", async || received.count("notifications/cancelled") == 2).await;
}

#[tokio::test]
async fn calls_of_one_turn_run_concurrently() {
    let pending = Arc::new(Mutex::new(Vec::new()));
    let (server, _) = scripted_server(move |connection, method, request| match method {
        "tools/call" => {
            let mut pending = pending.lock().unwrap();
            pending.push(request["id"].clone());
            if pending.len() == 3 {
                for id in pending.iter().rev() {
                    let response =
                        json!({ "jsonrpc": "2.0", "id": id, "result": text_result(&id.to_string()) });
                    connection.send_line(response.to_string());
                }
            }
            Reply::NoResponse
        }
        _ => Reply::Default,
    });
    let tools = server.connect().await.unwrap();
    let calls = ["a", "b", "c"].map(|word| ("echo", format!(r#"{{"text": "{word}"}}"#)));
    let calls = calls.each_ref().map(|(name, arguments)| (*name, arguments.as_str()));
    let model = ScriptedModel::new().calls_all(calls).says("Done.");
    let agent = Agent::builder(model).tool_provider(tools).build().unwrap();
    let answer = agent.ask("Go").await.unwrap();
    let outputs: Vec<_> =
        answer.tool_executions().iter().map(|execution| execution.outcome().unwrap().to_string()).collect();
    assert_eq!(outputs.len(), 3);
    assert!(outputs.windows(2).all(|pair| pair[0] < pair[1]), "each call has its own output: {outputs:?}");
}

#[tokio::test]
async fn provides_the_servers_description_and_logs() {
    let (server, _) = scripted_server(|connection, method, _| match method {
        "initialize" => {
            let mut initialized = initialize_result();
            initialized["instructions"] = "Be gentle.".into();
            Reply::Result(initialized)
        }
        "tools/call" => {
            let log = json!({ "level": "warning", "logger": "disk", "data": { "full": true } });
            connection.notify("notifications/message", log);
            Reply::Default
        }
        _ => Reply::Default,
    });
    let logged = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&logged);
    let server = server.on_log(move |entry| log.lock().unwrap().push(entry.clone()));
    let tools = server.connect().await.unwrap();
    assert_eq!(tools.instructions().as_deref(), Some("Be gentle."));
    let info = tools.info().unwrap();
    assert_eq!(info.server_info.as_ref().unwrap().name, "raw");
    assert!(info.capabilities.tools.is_some());
    assert!(tools.peer().is_some() && tools.last_error().is_none());
    assert_eq!(tools.listed_tools().await.unwrap()[0].description(), Some("Does echo"));

    call(&tools.tools().await.unwrap(), "echo", json!({})).await.unwrap();
    let logged = logged.lock().unwrap().clone();
    assert_eq!((&*logged[0].level, logged[0].logger.as_deref()), ("warning", Some("disk")));
    assert_eq!(logged[0].data, json!({ "full": true }));
    assert!(!format!("{:?}", logged[0]).contains("full"));
}

#[tokio::test]
async fn offers_a_new_tool_in_the_next_turn_of_the_run() {
    let has_grown = Arc::new(Mutex::new(false));
    let (server, _) = scripted_server(move |connection, method, _| match method {
        "tools/list" if *has_grown.lock().unwrap() => {
            Reply::Result(json!({ "tools": [super::support::tool("echo"), super::support::tool("more")] }))
        }
        "tools/call" => {
            *has_grown.lock().unwrap() = true;
            connection.notify("notifications/tools/list_changed", json!({}));
            Reply::Default
        }
        _ => Reply::Default,
    });
    let tools = server.connect().await.unwrap();
    let model = ScriptedModel::new()
        .expects(|request| request.tools().len() == 1)
        .calls("echo", "{}")
        .expects(|request| request.tools().len() == 2)
        .calls("more", r#"{"text": "hello"}"#)
        .says("Done.");
    let agent = Agent::builder(model).tool_provider(tools).build().unwrap();
    let answer = agent.ask("Go").await.unwrap();
    assert_eq!(answer.tool_executions()[1].outcome().unwrap().to_string(), "hello");
}
