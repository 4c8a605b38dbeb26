//! Graceful shutdown of a server over HTTP.

use std::time::Duration;

use rmcp::model::SubscriptionFilter;
use serde_json::json;
use tokio::net::TcpStream;
use tool_core::tools;
use tool_mcp::server::Server;

use super::client::{Client, Connection, wait_until};
use super::tools::{Witness, wait};

async fn client(connection: Connection, witness: &Witness) -> Client {
    Client::connect(connection, Server::new(tools![wait]).context(witness.context())).await
}

#[tokio::test]
async fn stop_waits_for_calls_in_flight_and_ends_sessions() {
    for connection in [Connection::Http, Connection::HttpNewest] {
        let witness = Witness::default();
        let mut client = client(connection, &witness).await;
        let server = client.server.take().unwrap();
        let address = server.address();
        let _subscription = if connection.is_newest() {
            let mut filter = SubscriptionFilter::default();
            filter.tools_list_changed = Some(true);
            Some(client.service.listen(filter).await.unwrap())
        } else {
            None
        };
        let stopping = async {
            witness.started.notified().await;
            let stopping = tokio::spawn(server.stop());
            while TcpStream::connect(address).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert!(!stopping.is_finished());
            witness.release.notify_one();
            // Although the session has an endless stream.
            tokio::time::timeout(Duration::from_secs(120), stopping).await.unwrap().unwrap().unwrap();
        };
        let (text, ()) = futures_util::future::join(client.text("wait", json!({})), stopping).await;
        assert_eq!(text.0, "released", "{connection:?}");
    }
}

#[tokio::test]
async fn stop_within_cancels_calls_after_the_timeout() {
    for connection in [Connection::Http, Connection::HttpNewest] {
        let witness = Witness::default();
        let mut client = client(connection, &witness).await;
        let server = client.server.take().unwrap();
        let calling = tokio::spawn(async move { client.call("wait", json!({})).await.is_err() });
        witness.started.notified().await;
        server.stop_within(Duration::from_millis(20)).await.unwrap();
        tokio::time::timeout(Duration::from_secs(120), witness.cancelled.notified()).await.unwrap();
        wait_until(|| witness.is_idle()).await;
        calling.abort();
    }
}

#[tokio::test]
async fn a_dropped_server_still_answers_calls_in_flight() {
    let witness = Witness::default();
    let mut client = client(Connection::Http, &witness).await;
    let server = client.server.take().unwrap();
    let (text, ()) = futures_util::future::join(client.text("wait", json!({})), async {
        witness.started.notified().await;
        let address = server.address();
        drop(server);
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        witness.release.notify_one();
    })
    .await;
    assert_eq!(text.0, "released");
}
