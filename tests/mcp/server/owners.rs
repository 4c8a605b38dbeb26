//! Sessions belong to the token that began them.

use reqwest::{RequestBuilder, Response};
use serde_json::json;
use tool_core::tools;
use tool_mcp::server::Server;

use super::client::http;
use super::guarding::{initialize, post};
use super::tools::sum;

async fn send(request: RequestBuilder, token: &str, session: &str) -> (u16, String) {
    let response: Response =
        request.bearer_auth(token).header("mcp-session-id", session).send().await.unwrap();
    let status = response.status().as_u16();
    // The body of a stream has no end.
    let body = if status == 200 { String::new() } else { response.text().await.unwrap() };
    (status, body)
}

#[tokio::test]
async fn a_session_exists_only_for_its_token() {
    let server = Server::new(tools![sum]).bearer_token("owner").bearer_token("other");
    let server = server.spawn("127.0.0.1:0").await.unwrap();
    let url = server.url();
    let response = initialize(&url).bearer_auth("owner").send().await.unwrap();
    let session = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string();
    assert_eq!(send(post(&url, initialized.clone()), "owner", &session).await.0, 202);
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }).to_string();
    let stream = || http().get(&url).header("accept", "text/event-stream");
    let requests: [&dyn Fn() -> RequestBuilder; 3] =
        [&|| http().delete(&url), &stream, &|| stream().header("last-event-id", "0")];
    for request in requests {
        let foreign = send(request(), "other", &session).await;
        assert_eq!(foreign, (404, "Not Found: Session not found".to_owned()));
        assert_eq!(foreign, send(request(), "other", "unknown").await);
    }
    for body in [&list, &initialized] {
        let foreign = send(post(&url, body.clone()), "other", &session).await;
        assert_eq!(foreign, (404, "Not Found: Session not found".to_owned()));
        assert_eq!(foreign, send(post(&url, body.clone()), "other", "unknown").await);
    }
    // The session is untouched.
    assert_eq!(send(post(&url, list.clone()), "owner", &session).await.0, 200);
    assert_eq!(send(http().delete(&url), "owner", &session).await.0, 202);
    assert_eq!(send(post(&url, list), "owner", &session).await.0, 404);
    assert_eq!(send(http().delete(&url), "owner", &session).await.0, 404);
}
