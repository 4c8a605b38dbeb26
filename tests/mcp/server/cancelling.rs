//! Cancelled calls.

use std::time::Duration;

use rmcp::model::{CallToolRequest, ClientRequest};
use rmcp::service::PeerRequestOptions;
use serde_json::json;
use tool_core::tools;
use tool_mcp::server::Server;

use super::client::{Client, Connection, params, wait_until};
use super::tools::{Witness, sum, wait};

async fn start_call(
    connection: Connection,
    witness: &Witness,
) -> (Client, rmcp::service::RequestHandle<rmcp::RoleClient>) {
    let server = Server::new(tools![wait, sum]).context(witness.context());
    let client = Client::connect(connection, server).await;
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params("wait", json!({}))));
    let handle =
        client.service.send_cancellable_request(request, PeerRequestOptions::no_options()).await.unwrap();
    tokio::time::timeout(Duration::from_secs(120), witness.started.notified()).await.unwrap();
    (client, handle)
}

async fn wait_until_cancelled(witness: &Witness) {
    tokio::time::timeout(Duration::from_secs(120), witness.cancelled.notified()).await.unwrap();
    wait_until(|| witness.is_idle()).await;
}

#[tokio::test]
async fn drops_a_call_that_the_client_cancels() {
    for connection in Connection::ALL {
        let witness = Witness::default();
        let (client, handle) = start_call(connection, &witness).await;
        handle.cancel(Some("changed my mind".into())).await.unwrap();
        wait_until_cancelled(&witness).await;
        // The session continues.
        assert_eq!(client.text("sum", json!({ "a": 1, "b": 2 })).await.0, "3.0", "{connection:?}");
    }
}

#[tokio::test]
async fn drops_calls_when_the_connection_ends() {
    let connections = Connection::ALL.map(async |connection| {
        let witness = Witness::default();
        let (client, _handle) = start_call(connection, &witness).await;
        client.service.cancel().await.unwrap();
        wait_until_cancelled(&witness).await;
    });
    futures_util::future::join_all(connections).await;
}
