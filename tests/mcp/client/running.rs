//! Tools of servers in an agent's run: progress, cancellation, and what else a server says.

use std::sync::{Arc, Mutex};

use serde_json::json;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, CancellationToken, Event};

use super::support::{Reply, call, initialized, raw, text, until};

#[tokio::test]
async fn the_progress_of_a_call_is_told_as_the_runs() {
    let (server, _) = raw(|talk, method, request| match method {
        "tools/call" => {
            let token = &request["params"]["_meta"]["progressToken"];
            let steps = [
                json!({ "progressToken": token, "progress": 1, "total": 4, "message": "one" }),
                json!({ "progressToken": token, "progress": 0.5, "total": 1.0 }),
                json!({ "progressToken": token, "progress": 7 }),
                json!({ "progressToken": "somebody else's", "progress": 8 }),
            ];
            steps.into_iter().for_each(|step| talk.notify("notifications/progress", step));
            Reply::Result(text("done"))
        }
        _ => Reply::Usual,
    });
    let model = ScriptedModel::new().calls("echo", "{}").says("Done.");
    let tools = server.connect().await.unwrap();
    let agent = Agent::builder(model).tool_provider(tools).build().unwrap();
    let mut told = Vec::new();
    let mut events = agent.ask("Go").stream();
    while let Some(event) = events.next().await {
        if let Event::CallProgress { progress, .. } = event.unwrap() {
            told.push((progress.text.clone(), progress.done, progress.total));
        }
    }
    let expected = [
        ("one".to_owned(), Some(1), Some(4)),
        (String::new(), Some(50), Some(100)),
        (String::new(), Some(7), None),
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_run_that_is_cancelled_cancels_its_calls_at_the_server() {
    let (server, heard) = raw(|_, method, _| match method {
        "tools/call" => Reply::Nothing,
        _ => Reply::Usual,
    });
    let tools = server.connect().await.unwrap();
    let model = ScriptedModel::new().calls_all([("echo", "{}"), ("echo", r#"{"text": "b"}"#)]).says("Never.");
    let agent = Agent::builder(model).tool_provider(tools).build().unwrap();
    let cancellation = CancellationToken::new();
    let run = agent.ask("Go").cancelled_by(&cancellation);
    let cancel = async {
        until("both are called", async || heard.count("tools/call") == 2).await;
        cancellation.cancel();
    };
    let (outcome, ()) = tokio::join!(run.into_future(), cancel);
    assert!(outcome.is_err());
    until("both are cancelled", async || heard.count("notifications/cancelled") == 2).await;
}

#[tokio::test]
async fn calls_of_one_turn_are_under_way_together() {
    let open = Arc::new(Mutex::new(Vec::new()));
    let (server, _) = raw(move |talk, method, request| match method {
        "tools/call" => {
            let mut open = open.lock().unwrap();
            open.push(request["id"].clone());
            if open.len() == 3 {
                for id in open.iter().rev() {
                    let answer = json!({ "jsonrpc": "2.0", "id": id, "result": text(&id.to_string()) });
                    talk.raw(answer.to_string());
                }
            }
            Reply::Nothing
        }
        _ => Reply::Usual,
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
    assert!(outputs.windows(2).all(|pair| pair[0] < pair[1]), "each has its own: {outputs:?}");
}

#[tokio::test]
async fn what_the_server_says_of_itself_is_there() {
    let (server, _) = raw(|talk, method, _| match method {
        "initialize" => {
            let mut initialized = initialized();
            initialized["instructions"] = "Be gentle.".into();
            Reply::Result(initialized)
        }
        "tools/call" => {
            let log = json!({ "level": "warning", "logger": "disk", "data": { "full": true } });
            talk.notify("notifications/message", log);
            Reply::Usual
        }
        _ => Reply::Usual,
    });
    let logged = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&logged);
    let server = server.on_log(move |entry| log.lock().unwrap().push(entry.clone()));
    let tools = server.connect().await.unwrap();
    assert_eq!(tools.instructions().as_deref(), Some("Be gentle."));
    let info = tools.info().unwrap();
    assert_eq!(info.server_info.as_ref().unwrap().name, "raw");
    assert!(info.capabilities.tools.is_some());
    assert!(tools.peer().is_some() && tools.down().is_none());
    assert_eq!(tools.listed().await.unwrap()[0].description(), Some("Does echo"));

    call(&tools.tools().await.unwrap(), "echo", json!({})).await.unwrap();
    let logged = logged.lock().unwrap().clone();
    assert_eq!((&*logged[0].level, logged[0].logger.as_deref()), ("warning", Some("disk")));
    assert_eq!(logged[0].data, json!({ "full": true }));
    assert!(!format!("{:?}", logged[0]).contains("full"));
}

#[tokio::test]
async fn a_tool_that_comes_in_the_middle_of_a_run_is_offered_in_its_next_turn() {
    let grown = Arc::new(Mutex::new(false));
    let (server, _) = raw(move |talk, method, _| match method {
        "tools/list" if *grown.lock().unwrap() => {
            Reply::Result(json!({ "tools": [super::support::tool("echo"), super::support::tool("more")] }))
        }
        "tools/call" => {
            *grown.lock().unwrap() = true;
            talk.notify("notifications/tools/list_changed", json!({}));
            Reply::Usual
        }
        _ => Reply::Usual,
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
