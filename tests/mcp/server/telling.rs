//! What a client is told while a call is under way.

#![expect(deprecated, reason = "logging, which most clients still have")]

use rmcp::model::{LoggingLevel, NumberOrString, ProgressToken, RequestMetaObject, SetLevelRequestParams};
use serde_json::json;
use tool_mcp::server::Server;

use super::client::{Client, Way, params, text, until};
use super::tools::plain;

#[tokio::test]
async fn progress_is_told_to_who_asks_for_it() {
    for way in Way::ALL {
        let client = Client::connect(way, Server::new(plain())).await;
        let token = ProgressToken(NumberOrString::String("token".into()));
        let mut params = params("count", json!({ "to": 5 }));
        params.meta = Some(RequestMetaObject::with_progress_token(token.clone()));
        let result = client.service.call_tool(params).await.unwrap();
        assert_eq!(text(&result).0, "true");
        let heard = client.heard.progress.clone();
        until(|| heard.lock().unwrap().len() == 5).await;
        for (index, told) in heard.lock().unwrap().iter().enumerate() {
            assert_eq!((told.progress, told.total), (index as f64 + 1.0, Some(5.0)), "{way:?}");
            assert_eq!(told.message.as_deref(), Some("counting"));
        }
    }
}

/// A tool does not wait for who listens; what finds no room is lost.
#[tokio::test]
async fn more_progress_than_finds_room() {
    let client = Client::connect(Way::Streams, Server::new(plain())).await;
    let mut params = params("burst", json!({}));
    params.meta = Some(RequestMetaObject::with_progress_token(ProgressToken(NumberOrString::Number(1))));
    let called = tokio::time::timeout(std::time::Duration::from_secs(30), client.service.call_tool(params));
    assert_eq!(text(&called.await.unwrap().unwrap()).0, "Success");
    let told = client.heard.progress.lock().unwrap().len();
    assert!((1..1000).contains(&told), "{told}");
}

#[tokio::test]
async fn what_is_logged_is_what_was_asked_for() {
    let table = [
        (LoggingLevel::Debug, &["call started", "call finished", "call started", "call failed"][..]),
        (LoggingLevel::Info, &["call finished", "call failed"]),
        (LoggingLevel::Warning, &["call failed"]),
        (LoggingLevel::Error, &[]),
    ];
    for way in [Way::Streams, Way::Http] {
        for (level, expected) in table {
            let client = Client::connect(way, Server::new(plain())).await;
            // Nothing is told before a level is set.
            client.call("hello", json!({})).await.unwrap();
            client.service.set_level(SetLevelRequestParams::new(level)).await.unwrap();
            client.call("hello", json!({ "name": "secret" })).await.unwrap();
            client.call("weather", json!({ "city": "" })).await.unwrap();
            let logs = client.heard.logs.clone();
            until(|| logs.lock().unwrap().len() == expected.len()).await;
            let logs = logs.lock().unwrap();
            let events: Vec<_> = logs.iter().map(|log| log.data["event"].as_str().unwrap()).collect();
            assert_eq!(events, expected, "{way:?}");
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

/// A request of the newest protocol says itself what it wants to be told.
#[tokio::test]
async fn a_request_names_its_level() {
    for way in [Way::StreamsNewest, Way::HttpNewest] {
        let client = Client::connect(way, Server::new(plain())).await;
        let mut params = params("hello", json!({}));
        let mut meta = RequestMetaObject::new();
        meta.set_log_level(LoggingLevel::Info);
        params.meta = Some(meta);
        client.service.call_tool(params).await.unwrap();
        let logs = client.heard.logs.clone();
        until(|| logs.lock().unwrap().len() == 1).await;
        client.call("hello", json!({})).await.unwrap();
        assert_eq!(logs.lock().unwrap().len(), 1, "{way:?}");
    }
}
