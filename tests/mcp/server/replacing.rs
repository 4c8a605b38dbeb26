//! Tools that are replaced while they are served.

use rmcp::model::SubscriptionFilter;
use serde_json::json;
use tool_core::tools;
use tool_mcp::server::Server;

use super::client::{Client, Way, until};
use super::tools::{Witness, hello, sum, wait};

#[tokio::test]
async fn clients_are_told_and_see_the_new_tools() {
    for way in Way::ALL {
        let server = Server::new(tools![sum]);
        let live = server.live_tools();
        let client = Client::connect(way, server).await;
        let listening = if way.is_newest() {
            let mut filter = SubscriptionFilter::default();
            filter.tools_list_changed = Some(true);
            Some(client.service.listen(filter).await.unwrap())
        } else {
            None
        };
        client.text("sum", json!({ "a": 1, "b": 2 })).await;
        live.replace(tools![hello]).unwrap();
        match listening {
            Some(mut listening) => {
                let told = tokio::time::timeout(std::time::Duration::from_secs(30), listening.next());
                assert!(told.await.unwrap().unwrap().is_some(), "{way:?}");
            }
            None => {
                let changes = client.heard.changes.clone();
                until(|| *changes.lock().unwrap() == 1).await;
            }
        }
        let names: Vec<_> =
            client.service.list_all_tools().await.unwrap().into_iter().map(|tool| tool.name).collect();
        assert_eq!(names, ["hello"]);
        assert!(client.call("sum", json!({ "a": 1, "b": 2 })).await.is_err());
        assert_eq!(client.text("hello", json!({})).await.0, "hello you");
    }
}

#[tokio::test]
async fn tools_that_lack_something_do_not_replace_others() {
    let server = Server::new(tools![sum]);
    let live = server.live_tools();
    let client = Client::connect(Way::Streams, server).await;
    assert!(live.replace(tools![wait]).unwrap_err().is_missing_context());
    assert_eq!(client.service.list_all_tools().await.unwrap()[0].name, "sum");

    let server = Server::new(tools![sum]).context(Witness::default().context());
    let live = server.live_tools();
    let _client = Client::connect(Way::Streams, server).await;
    live.replace(tools![wait]).unwrap();
}

/// A call that is under way is of the tools that there were.
#[tokio::test]
async fn a_call_under_way_comes_to_its_end() {
    let witness = Witness::default();
    let server = Server::new(tools![wait]).context(witness.context());
    let live = server.live_tools();
    let client = Client::connect(Way::Http, server).await;
    let (text, ()) = futures_util::future::join(client.text("wait", json!({})), async {
        witness.began.notified().await;
        live.replace(tools![]).unwrap();
        witness.go.notify_one();
    })
    .await;
    assert_eq!(text, ("it was let go".into(), false));
}
