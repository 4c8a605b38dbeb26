//! Calls that need approval.

use serde_json::json;
use tool_core::{Approval, ToolCall, tools};
use tool_mcp::server::Server;

use super::client::{Client, Connection};
use super::tools::pay;

#[tokio::test]
async fn asks_the_approver_before_each_call() {
    let server = Server::new(tools![pay]).approver(|call: &ToolCall| match &*call.arguments {
        r#"{"cents":1}"# => Approval::Approve,
        r#"{"cents":2}"# => Approval::ApproveWith(r#"{"cents": 20}"#.into()),
        r#"{"cents":3}"# => Approval::deny("too much"),
        r#"{"cents":4}"# => Approval::Deny(None),
        _ => Approval::Defer,
    });
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
