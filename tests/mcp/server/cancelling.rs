//! Calls that nobody waits for any more.

use std::time::Duration;

use rmcp::model::{CallToolRequest, ClientRequest};
use rmcp::service::PeerRequestOptions;
use serde_json::json;
use tool_core::tools;
use tool_mcp::server::Server;

use super::client::{Client, Way, params, until};
use super::tools::{Witness, sum, wait};

async fn begun(way: Way, witness: &Witness) -> (Client, rmcp::service::RequestHandle<rmcp::RoleClient>) {
    let server = Server::new(tools![wait, sum]).context(witness.context());
    let client = Client::connect(way, server).await;
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params("wait", json!({}))));
    let handle =
        client.service.send_cancellable_request(request, PeerRequestOptions::no_options()).await.unwrap();
    tokio::time::timeout(Duration::from_secs(30), witness.began.notified()).await.unwrap();
    (client, handle)
}

async fn is_cancelled(witness: &Witness) {
    tokio::time::timeout(Duration::from_secs(30), witness.cancelled.notified()).await.unwrap();
    until(|| witness.is_idle()).await;
}

#[tokio::test]
async fn a_call_that_the_client_cancels_is_dropped() {
    for way in Way::ALL {
        let witness = Witness::default();
        let (client, handle) = begun(way, &witness).await;
        handle.cancel(Some("changed my mind".into())).await.unwrap();
        is_cancelled(&witness).await;
        // The session goes on.
        assert_eq!(client.text("sum", json!({ "a": 1, "b": 2 })).await.0, "3.0", "{way:?}");
    }
}

#[tokio::test]
async fn calls_end_with_their_connection() {
    let ways = Way::ALL.map(async |way| {
        let witness = Witness::default();
        let (client, _handle) = begun(way, &witness).await;
        client.service.cancel().await.unwrap();
        is_cancelled(&witness).await;
    });
    futures_util::future::join_all(ways).await;
}
