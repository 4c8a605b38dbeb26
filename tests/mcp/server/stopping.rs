//! A server over HTTP that stops.

use std::time::Duration;

use rmcp::model::SubscriptionFilter;
use serde_json::json;
use tokio::net::TcpStream;
use tool_core::tools;
use tool_mcp::server::Server;

use super::client::{Client, Way, until};
use super::tools::{Witness, wait};

async fn client(way: Way, witness: &Witness) -> Client {
    Client::connect(way, Server::new(tools![wait]).context(witness.context())).await
}

#[tokio::test]
async fn calls_under_way_come_to_their_end_and_sessions_end() {
    for way in [Way::Http, Way::HttpNewest] {
        let witness = Witness::default();
        let mut client = client(way, &witness).await;
        let server = client.server.take().unwrap();
        let address = server.address();
        let _listening = if way.is_newest() {
            let mut filter = SubscriptionFilter::default();
            filter.tools_list_changed = Some(true);
            Some(client.service.listen(filter).await.unwrap())
        } else {
            None
        };
        let stopping = async {
            witness.began.notified().await;
            let stopping = tokio::spawn(server.stop());
            while TcpStream::connect(address).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert!(!stopping.is_finished());
            witness.go.notify_one();
            // Though the session has a stream that nobody would end.
            tokio::time::timeout(Duration::from_secs(30), stopping).await.unwrap().unwrap().unwrap();
        };
        let (text, ()) = futures_util::future::join(client.text("wait", json!({})), stopping).await;
        assert_eq!(text.0, "it was let go", "{way:?}");
    }
}

#[tokio::test]
async fn calls_that_take_too_long_are_cancelled() {
    for way in [Way::Http, Way::HttpNewest] {
        let witness = Witness::default();
        let mut client = client(way, &witness).await;
        let server = client.server.take().unwrap();
        let calling = tokio::spawn(async move { client.call("wait", json!({})).await.is_err() });
        witness.began.notified().await;
        server.stop_within(Duration::from_millis(20)).await.unwrap();
        tokio::time::timeout(Duration::from_secs(30), witness.cancelled.notified()).await.unwrap();
        until(|| witness.is_idle()).await;
        calling.abort();
    }
}

#[tokio::test]
async fn a_server_that_is_dropped_still_answers_what_is_under_way() {
    let witness = Witness::default();
    let mut client = client(Way::Http, &witness).await;
    let server = client.server.take().unwrap();
    let (text, ()) = futures_util::future::join(client.text("wait", json!({})), async {
        witness.began.notified().await;
        drop(server);
        tokio::time::sleep(Duration::from_millis(20)).await;
        witness.go.notify_one();
    })
    .await;
    assert_eq!(text.0, "it was let go");
}
