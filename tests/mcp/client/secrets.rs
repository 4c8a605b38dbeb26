//! Secrets that were sent to a server do not appear in errors, whole or in part.

use axum::body::Body;
use axum::http::Response;
use serde_json::{Value, json};
use tests::support::sampling::size;
use tool_mcp::{McpError, McpErrorKind, McpServer};

use super::support::call;
use super::transports::{default_response, http_server, response};

const TOKEN: &str = "sk-token-1234567890";

/// Returns the error of a call that the server answers with this member of the message.
async fn error_of_call(member: &'static str, answer: Value) -> (String, McpError) {
    let (url, _) = http_server(move |method, message, _| match method {
        "tools/call" => {
            let mut call = json!({ "jsonrpc": "2.0", "id": message["id"] });
            call[member] = answer.clone();
            response("application/json", call.to_string())
        }
        _ => default_response(method, message),
    })
    .await;
    let url = url.replace("http://", "http://user-name-1:pass%2Dword-2@") + "?key=query%2Dvalue-3";
    let server = McpServer::http(url).bearer_token(TOKEN).header("x-quoted", "a\"quoted\"one");
    let server = server.header("x-longer", format!("{TOKEN}-and-more")).max_output_chars(1000);
    let set = server.connect().await.unwrap().tools().await.unwrap();
    let error = call(&set, "echo", json!({})).await.unwrap_err();
    (error.to_string(), error.failure().unwrap().downcast_ref::<McpError>().unwrap().clone())
}

fn assert_no_secret(text: &str) {
    for secret in ["sk-tok", "and-more", "pass-word-2", "pass%2Dword-2", "user-name-1", "query", "quoted"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
}

#[tokio::test]
async fn redacts_the_failure_of_a_tool() {
    let text = format!(
        "{TOKEN} {TOKEN}-and-more http://user-name-1:pass-word-2@x/?key=query-value-3 pass%2Dword-2 \
         query%2Dvalue-3 a\"quoted\"one"
    );
    let result = |content: Value, structured: Value| json!({ "content": content, "structuredContent": structured, "isError": true });
    let texts =
        json!([{ "type": "text", "text": text }, { "type": "resource_link", "uri": text, "name": "x" }]);
    for result in [result(texts, json!({ text.clone(): [text] })), result(json!([]), json!({ "why": text }))]
    {
        let (text, error) = error_of_call("result", result).await;
        assert_eq!(error.kind(), McpErrorKind::ToolFailed);
        assert!(text.contains("[…]"), "{text}");
        assert_no_secret(&text);
        assert_no_secret(&error.data().unwrap().to_string());
    }
}

/// A token that crosses the place of the cut would otherwise survive in part.
#[tokio::test]
async fn redacts_before_it_cuts() {
    for padding in (480..=500).chain(980..1000).step_by(size(3, 1)) {
        let text = format!("{}{TOKEN}{}", "x".repeat(padding), "y".repeat(2000));
        let result = json!({ "content": [{ "type": "text", "text": text }], "isError": true });
        assert_no_secret(&error_of_call("result", result).await.0);
    }
    for padding in (1980..2000).step_by(size(3, 1)) {
        let message = format!("{}{TOKEN}", "x".repeat(padding));
        assert_no_secret(&error_of_call("error", json!({ "code": -32000, "message": message })).await.0);
    }
    for padding in (180..200).step_by(size(3, 1)) {
        let (url, _) = http_server(move |_, _, _| {
            let body = format!("{}{TOKEN}", "x".repeat(padding));
            Response::builder().status(403).body(Body::from(body)).unwrap()
        })
        .await;
        let error = McpServer::http(&url).bearer_token(TOKEN).connect().await.unwrap_err().to_string();
        assert!(error.contains("403"), "{error}");
        assert_no_secret(&error);
    }
}

#[tokio::test]
async fn redacts_the_error_of_a_connector() {
    let connect = || async {
        let error = "no route to https://user:hunter22@example.org/a?key=secret-1&b=secret-2#c, sorry";
        Err::<(tokio::io::Empty, tokio::io::Empty), _>(std::io::Error::other(error.repeat(100)))
    };
    let error = McpServer::connector("raw", connect).connect().await.unwrap_err().to_string();
    assert!(error.contains("https://[…]@example.org/a?key=[…]&b=[…]#c, sorry"), "{error}");
    assert!(!error.contains("hunter22") && !error.contains("secret-") && error.len() < 5000, "{error}");
}
