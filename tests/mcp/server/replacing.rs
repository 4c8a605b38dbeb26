//! Replacing tools while they are served.

use rmcp::model::{ErrorCode, SubscriptionFilter};
use rmcp::service::ServiceError;
use serde_json::json;
use tool_core::tools;
use tool_mcp::server::{Server, ServerErrorKind};

use super::client::{Client, Connection, wait_until};
use super::tools::{Witness, hello, sum, wait};

#[tokio::test]
async fn notifies_clients_and_serves_the_new_tools() {
    for connection in Connection::ALL {
        let server = Server::new(tools![sum]);
        let handle = server.tools_handle();
        let client = Client::connect(connection, server).await;
        let subscription = if connection.is_newest() {
            let mut filter = SubscriptionFilter::default();
            filter.tools_list_changed = Some(true);
            Some(client.service.listen(filter).await.unwrap())
        } else {
            None
        };
        client.text("sum", json!({ "a": 1, "b": 2 })).await;
        handle.replace(tools![hello]).unwrap();
        match subscription {
            Some(mut subscription) => {
                let notified = tokio::time::timeout(std::time::Duration::from_secs(30), subscription.next());
                assert!(notified.await.unwrap().unwrap().is_some(), "{connection:?}");
            }
            None => {
                let changes = client.notifications.changes.clone();
                wait_until(|| *changes.lock().unwrap() == 1).await;
            }
        }
        let names: Vec<_> =
            client.service.list_all_tools().await.unwrap().into_iter().map(|tool| tool.name).collect();
        assert_eq!(names, ["hello"]);
        let error = client.call("sum", json!({ "a": 1, "b": 2 })).await.unwrap_err();
        let ServiceError::McpError(error) = error else { panic!("{error}") };
        assert_eq!(error.code, ErrorCode::INVALID_PARAMS, "{error}");
        assert_eq!(client.text("hello", json!({})).await.0, "hello you");
    }
}

#[tokio::test]
async fn rejects_tools_with_missing_context() {
    let server = Server::new(tools![sum]);
    let handle = server.tools_handle();
    let client = Client::connect(Connection::Streams, server).await;
    assert_eq!(handle.replace(tools![wait]).unwrap_err().kind(), ServerErrorKind::MissingContext);
    assert_eq!(client.service.list_all_tools().await.unwrap()[0].name, "sum");

    let server = Server::new(tools![sum]).context(Witness::default().context());
    let handle = server.tools_handle();
    let _client = Client::connect(Connection::Streams, server).await;
    handle.replace(tools![wait]).unwrap();
}

/// A call in flight belongs to the previous tools.
#[tokio::test]
async fn calls_in_flight_finish() {
    let witness = Witness::default();
    let server = Server::new(tools![wait]).context(witness.context());
    let handle = server.tools_handle();
    let client = Client::connect(Connection::Http, server).await;
    let (text, ()) = futures_util::future::join(client.text("wait", json!({})), async {
        witness.started.notified().await;
        handle.replace(tools![]).unwrap();
        witness.release.notify_one();
    })
    .await;
    assert_eq!(text, ("released".into(), false));
}
