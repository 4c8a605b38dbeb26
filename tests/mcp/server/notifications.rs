//! Notifications during a call.

#![expect(deprecated, reason = "most clients still use logging")]

use rmcp::model::{LoggingLevel, NumberOrString, ProgressToken, RequestMetaObject, SetLevelRequestParams};
use serde_json::json;
use tool_mcp::server::Server;

use super::client::{Client, Connection, params, text, wait_until};
use super::tools::without_context;

#[tokio::test]
async fn sends_progress_if_requested() {
    for connection in Connection::ALL {
        let client = Client::connect(connection, Server::new(without_context())).await;
        let token = ProgressToken(NumberOrString::String("token".into()));
        let mut params = params("count", json!({ "to": 5 }));
        params.meta = Some(RequestMetaObject::with_progress_token(token.clone()));
        let result = client.service.call_tool(params).await.unwrap();
        assert_eq!(text(&result).0, "true");
        let progress = client.notifications.progress.clone();
        wait_until(|| progress.lock().unwrap().len() == 5).await;
        for (index, report) in progress.lock().unwrap().iter().enumerate() {
            assert_eq!((report.progress, report.total), (index as f64 + 1.0, Some(5.0)), "{connection:?}");
            assert_eq!(report.message.as_deref(), Some("counting"));
        }
    }
}

/// A tool does not wait for the client.
#[tokio::test]
async fn drops_progress_that_exceeds_the_buffer() {
    let client = Client::connect(Connection::Streams, Server::new(without_context())).await;
    let mut params = params("burst", json!({}));
    params.meta = Some(RequestMetaObject::with_progress_token(ProgressToken(NumberOrString::Number(1))));
    let called = tokio::time::timeout(std::time::Duration::from_secs(120), client.service.call_tool(params));
    assert_eq!(text(&called.await.unwrap().unwrap()).0, "Success");
    let received = client.notifications.progress.lock().unwrap().len();
    assert!((1..1000).contains(&received), "{received}");
}

#[tokio::test]
async fn logs_messages_of_the_requested_level() {
    let table = [
        (LoggingLevel::Debug, &["call started", "call finished", "call started", "call failed"][..]),
        (LoggingLevel::Info, &["call finished", "call failed"]),
        (LoggingLevel::Warning, &["call failed"]),
        (LoggingLevel::Error, &[]),
    ];
    for connection in [Connection::Streams, Connection::Http] {
        for (level, expected) in table {
            let client = Client::connect(connection, Server::new(without_context())).await;
            // Nothing is logged before a level is set.
            client.call("hello", json!({})).await.unwrap();
            client.service.set_level(SetLevelRequestParams::new(level)).await.unwrap();
            client.call("hello", json!({ "name": "secret" })).await.unwrap();
            client.call("weather", json!({ "city": "" })).await.unwrap();
            let logs = client.notifications.logs.clone();
            wait_until(|| logs.lock().unwrap().len() == expected.len()).await;
            let logs = logs.lock().unwrap();
            let events: Vec<_> = logs.iter().map(|log| log.data["event"].as_str().unwrap()).collect();
            assert_eq!(events, expected, "{connection:?}");
            let text = serde_json::to_string(&*logs).unwrap();
            assert!(!text.contains("secret") && !text.contains("no city"), "{text}");
            if let Some(failed) = logs.last() {
                assert_eq!(
                    (&failed.data["tool"], &failed.data["kind"]),
                    (&json!("weather"), &json!("failed"))
                );
            }
        }
    }
}

/// Requests of the newest protocol carry their own log level.
#[tokio::test]
async fn uses_the_log_level_of_the_request() {
    for connection in [Connection::StreamsNewest, Connection::HttpNewest] {
        let client = Client::connect(connection, Server::new(without_context())).await;
        let mut params = params("hello", json!({}));
        let mut meta = RequestMetaObject::new();
        meta.set_log_level(LoggingLevel::Info);
        params.meta = Some(meta);
        client.service.call_tool(params).await.unwrap();
        let logs = client.notifications.logs.clone();
        wait_until(|| logs.lock().unwrap().len() == 1).await;
        client.call("hello", json!({})).await.unwrap();
        assert_eq!(logs.lock().unwrap().len(), 1, "{connection:?}");
    }
}
