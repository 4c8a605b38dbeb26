//! Replacing tools while they are served.

use rmcp::model::{ErrorCode, SubscriptionFilter};
use rmcp::service::ServiceError;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tool_core::tools;
use tool_mcp::server::{Server, ServerErrorKind};

use super::client::{Client, Connection, wait_until};
use super::guarding::initialize;
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
                let notified = tokio::time::timeout(std::time::Duration::from_secs(120), subscription.next());
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

/// The client knows the tools of the time when it connected, however late its next message is served.
#[tokio::test]
async fn a_replacement_before_the_session_is_initialized_is_reported() {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (input, output) = tokio::io::split(theirs);
    let server = Server::new(tools![sum]);
    let handle = server.tools_handle();
    let serving = tokio::spawn(server.serve_streams(input, output));
    let (read, mut write) = tokio::io::split(ours);
    let mut lines = BufReader::new(read).lines();
    let greeting =
        initialize("http://localhost").build().unwrap().body().unwrap().as_bytes().unwrap().to_vec();
    write.write_all(&[&greeting, &b"\n"[..]].concat()).await.unwrap();
    assert!(lines.next_line().await.unwrap().unwrap().contains("protocolVersion"));
    handle.replace(tools![hello]).unwrap();
    write.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n").await.unwrap();
    let next = tokio::time::timeout(std::time::Duration::from_secs(120), lines.next_line());
    let next = next.await.expect("the client is notified").unwrap().unwrap();
    assert!(next.contains("notifications/tools/list_changed"), "{next}");
    drop((write, lines));
    serving.await.unwrap().unwrap();
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
