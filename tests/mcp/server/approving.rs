//! Calls that need approval.

use serde_json::json;
use tool_core::agent::on_approval;
use tool_core::run::Decision;
use tool_core::tools;
use tool_mcp::server::Server;

use super::client::{Client, Connection};
use super::tools::pay;

#[tokio::test]
async fn asks_the_approver_before_each_call() {
    let server = Server::new(tools![pay]).decider(on_approval(|call| match &*call.arguments {
        r#"{"cents":1}"# => Decision::approve(),
        r#"{"cents":2}"# => Decision::approve_with(r#"{"cents": 20}"#),
        r#"{"cents":3}"# => Decision::deny("too much"),
        r#"{"cents":4}"# => Decision::decline(),
        _ => Decision::defer(),
    }));
    let client = Client::connect(Connection::Streams, server).await;
    let table = [
        (1, "paid 1", false),
        (2, "paid 20", false),
        (3, "the call was denied: too much", true),
        (4, "the call was denied", true),
        (5, "the call was denied: no one is available to approve it", true),
    ];
    for (cents, expected, is_error) in table {
        assert_eq!(client.text("pay", json!({ "cents": cents })).await, (expected.to_owned(), is_error));
    }
}
