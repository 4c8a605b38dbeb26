//! The server as a protected resource: tokens, scopes, and what clients learn from refusals.

use std::sync::Arc;

use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tool_core::model::RunUser;
use tool_core::{tool, tools};
use tool_mcp::McpServer;
use tool_mcp::server::{
    Authorize, AuthorizeError, AuthorizeFuture, Credentials, Principal, ProtectedResource, RunningServer,
    Server, ServerErrorKind,
};

use super::client::{Client, Connection, http};
use super::guarding::{initialize, post};
use super::newest::{self, message};
use super::tools::sum;

#[tool("Returns the user")]
fn whoami(#[inject] user: &RunUser, #[inject] principal: &Principal) -> String {
    let can = if principal.has_scope("files:write") { "can" } else { "cannot" };
    format!("{user} {can} write")
}

#[tool("Lists the files")]
fn list() -> &'static str {
    "notes"
}

#[tool("Deletes a file")]
fn delete(name: String) -> String {
    format!("deleted {name}")
}

const METADATA: &str = "https://tools.example/.well-known/oauth-protected-resource/mcp";

fn resource() -> ProtectedResource {
    ProtectedResource::new("https://tools.example/mcp")
        .authorization_server("https://login.example")
        .scopes(["files:read"])
}

fn authorize(credentials: &Credentials<'_>) -> Result<Principal, AuthorizeError> {
    assert_eq!(format!("{credentials:?}"), "Credentials { .. }");
    match credentials.bearer_token() {
        Some("ada-writes") => Ok(Principal::new("ada", ["files:read", "files:write"])),
        Some("ada-reads") => Ok(Principal::new("ada", ["files:read"])),
        Some("eve") => Ok(Principal::new("eve", [""; 0])),
        Some("useless") => Err(AuthorizeError::insufficient_scope(["mcp"])),
        Some("unverifiable") => Err(AuthorizeError::unavailable()),
        _ => Err(AuthorizeError::unauthenticated()),
    }
}

fn protected() -> Server {
    Server::new(tools![whoami, list, delete, sum])
        .allow_host("tools.example")
        .protect(resource(), authorize)
        .scope("list", "files:read")
        .scope("delete", "files:read")
        .scope("delete", "files:write")
        .page_size(2)
}

async fn spawn_hiding() -> RunningServer {
    protected().hide_tools_without_scope().spawn("127.0.0.1:0").await.unwrap()
}

async fn spawn() -> RunningServer {
    protected().spawn("127.0.0.1:0").await.unwrap()
}

fn challenge(response: &Response) -> String {
    response.headers()["www-authenticate"].to_str().unwrap().to_owned()
}

fn request(url: &str, method: &str, params: Value) -> RequestBuilder {
    newest::request(url, method, params, &json!({}))
}

async fn send(request: RequestBuilder, token: &str) -> Value {
    newest::send(request.bearer_auth(token)).await
}

async fn call(url: &str, token: &str, tool: &str, arguments: Value) -> Value {
    send(request(url, "tools/call", json!({ "name": tool, "arguments": arguments })), token).await
}

#[tokio::test]
async fn publishes_where_clients_get_their_tokens() {
    let server = spawn().await;
    let root = format!("http://{}", server.address());
    let get = |path: &str| http().get(format!("{root}{path}")).send();
    let expected = json!({
        "resource": "https://tools.example/mcp",
        "authorization_servers": ["https://login.example"],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["files:read"],
    });
    let well_known = "/.well-known/oauth-protected-resource";
    for path in [well_known.to_owned(), format!("{well_known}/mcp")] {
        let response = get(&path).await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["content-type"]),
            (200, &"application/json".parse().unwrap())
        );
        assert_eq!(response.json::<Value>().await.unwrap(), expected, "{path}");
    }
    for (path, status) in [("/other", 404), ("s", 404), ("/mcp/", 404)] {
        assert_eq!(get(&format!("{well_known}{path}")).await.unwrap().status(), status, "{path}");
    }
    let posted = http().post(format!("{root}{well_known}")).send().await.unwrap();
    assert_eq!(posted.status(), 405);
    let foreign =
        http().get(format!("{root}{well_known}")).header("host", "evil.example").send().await.unwrap();
    assert_eq!(foreign.status(), 403);
    // Without protection, there is nothing.
    let open = Server::new(tools![sum]).spawn("127.0.0.1:0").await.unwrap();
    let response = http().get(format!("http://{}{well_known}", open.address())).send().await.unwrap();
    assert_eq!(response.status(), 404);
}

#[tokio::test]
async fn refuses_requests_without_a_valid_token() {
    let server = spawn().await;
    let url = server.url();
    let scope = "scope=\"files:read\"";
    let metadata = format!("resource_metadata=\"{METADATA}\"");
    let invalid = format!("Bearer error=\"invalid_token\", {scope}, {metadata}");
    let table = [
        (None, 401, format!("Bearer {scope}, {metadata}")),
        (Some("Bearer wrong"), 401, invalid.clone()),
        (Some("Basic ada-reads"), 401, invalid.clone()),
        (Some("Bearer ada-reads,"), 401, invalid.clone()),
        (Some("Bearer ada reads"), 401, invalid),
        (
            Some("Bearer useless"),
            403,
            format!("Bearer error=\"insufficient_scope\", scope=\"mcp\", {metadata}"),
        ),
    ];
    for (sent, status, expected) in table {
        let requests =
            [initialize(&url), http().get(&url), http().delete(&url), request(&url, "tools/list", json!({}))];
        for mut request in requests {
            if let Some(sent) = sent {
                request = request.header("authorization", sent);
            }
            let response = request.send().await.unwrap();
            assert_eq!(
                (response.status().as_u16(), challenge(&response)),
                (status, expected.clone()),
                "{sent:?}"
            );
        }
    }
    let response = initialize(&url).bearer_auth("unverifiable").send().await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (503, &"5".parse().unwrap())
    );
    let foreign =
        initialize(&url).header("host", "evil.example").bearer_auth("ada-reads").send().await.unwrap();
    assert_eq!(foreign.status(), 403);
    assert!(!foreign.headers().contains_key("www-authenticate"));
}

/// Returns the names of all listed tools, of all pages.
async fn listed(url: &str, token: &str) -> Vec<String> {
    let (mut names, mut params) = (Vec::new(), json!({}));
    loop {
        let page = send(request(url, "tools/list", params), token).await;
        let result = &page["result"];
        assert_eq!(result["cacheScope"], "private", "{page}");
        names.extend(
            result["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()),
        );
        match result["nextCursor"].as_str() {
            Some(cursor) => params = json!({ "cursor": cursor }),
            None => return names,
        }
    }
}

/// Clients can only request a scope for a tool that they know.
#[tokio::test]
async fn tools_are_listed_without_their_scopes() {
    let server = spawn().await;
    let url = server.url();
    for token in ["ada-writes", "ada-reads", "eve"] {
        assert_eq!(listed(&url, token).await, ["whoami", "list", "delete", "sum"]);
        let unknown = call(&url, token, "purge", json!({})).await;
        let expected = "there is no tool `purge`; the tools are `whoami`, `list`, `delete`, `sum`";
        assert_eq!(unknown["error"], json!({ "code": -32602, "message": expected }));
    }
    // The challenge has the scopes of this tool alone.
    let params = json!({ "name": "list", "arguments": {} });
    let refused = request(&url, "tools/call", params).bearer_auth("eve").send().await.unwrap();
    let expected = format!(
        "Bearer error=\"insufficient_scope\", scope=\"files:read\", resource_metadata=\"{METADATA}\""
    );
    assert_eq!((refused.status().as_u16(), challenge(&refused)), (403, expected));
}

#[tokio::test]
async fn hidden_tools_exist_for_those_with_their_scopes() {
    let server = spawn_hiding().await;
    let url = server.url();
    assert_eq!(listed(&url, "ada-writes").await, ["whoami", "list", "delete", "sum"]);
    assert_eq!(listed(&url, "ada-reads").await, ["whoami", "list", "sum"]);
    assert_eq!(listed(&url, "eve").await, ["whoami", "sum"]);

    let deleted = call(&url, "ada-writes", "delete", json!({ "name": "notes" })).await;
    assert_eq!(deleted["result"]["content"][0]["text"], "deleted notes");
    let params = json!({ "name": "delete", "arguments": { "name": "notes" } });
    for token in ["ada-reads", "eve"] {
        let refused = request(&url, "tools/call", params.clone()).bearer_auth(token).send().await.unwrap();
        let expected = format!(
            "Bearer error=\"insufficient_scope\", scope=\"files:read files:write\", resource_metadata=\"{METADATA}\""
        );
        assert_eq!((refused.status().as_u16(), challenge(&refused)), (403, expected));
    }
    let listed = call(&url, "ada-reads", "list", json!({})).await;
    assert_eq!(listed["result"]["content"][0]["text"], "notes");
    // Nobody learns the names of other tools.
    for (token, names) in [("eve", "`whoami`, `sum`"), ("ada-reads", "`whoami`, `list`, `sum`")] {
        let unknown = call(&url, token, "purge", json!({})).await;
        let expected = format!("there is no tool `purge`; the tools are {names}");
        assert_eq!(unknown["error"], json!({ "code": -32602, "message": expected }));
    }
    // A name that is read in two ways does not pass.
    for names in [
        r#""name":"whoami","name":"delete""#,
        r#""name":"delete","name":"whoami""#,
        r#""n\u0061me":"delete""#,
    ] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{names},"arguments":{{"name":"notes"}},"_meta":{{
                "io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}},
                "io.modelcontextprotocol/clientInfo":{{"name":"tests","version":"1"}}}}}}}}"#
        );
        let request = post(&url, body).bearer_auth("eve").header("mcp-protocol-version", "2026-07-28");
        let request = request.header("mcp-method", "tools/call").header("mcp-name", "delete");
        let answer = request.send().await.unwrap().text().await.unwrap();
        assert!(!answer.contains("deleted"), "{names}: {answer}");
    }
}

#[tokio::test]
async fn calls_have_the_user_and_the_scopes_of_their_own_request() {
    let server = spawn().await;
    let url = server.url();
    let who = call(&url, "ada-writes", "whoami", json!({})).await;
    assert_eq!(who["result"]["content"][0]["text"], "ada can write");
    let forged = call(&url, "eve", "whoami", json!({ "user": "ada", "principal": {} })).await;
    assert_eq!(forged["result"]["isError"], true, "{forged}");

    let begun = initialize(&url).bearer_auth("ada-writes").send().await.unwrap();
    let session = begun.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let post_as = |token: &str, body: Value| {
        post(&url, body.to_string()).bearer_auth(token).header("mcp-session-id", &session).send()
    };
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(post_as("ada-writes", initialized).await.unwrap().status(), 202);
    let calling = |tool: &str| json!({ "jsonrpc": "2.0", "id": tool, "method": "tools/call", "params": { "name": tool, "arguments": { "name": "notes" } } });
    let answer = post_as("ada-writes", calling("delete")).await.unwrap().text().await.unwrap();
    assert_eq!(message(&answer)["result"]["content"][0]["text"], "deleted notes");
    // The session goes on with another token of its user, and with what that may do.
    assert_eq!(post_as("ada-reads", calling("delete")).await.unwrap().status(), 403);
    let answer = post_as("ada-reads", calling("list")).await.unwrap().text().await.unwrap();
    assert!(answer.contains("isError\":true"), "{answer}");
    assert_eq!(post_as("eve", calling("whoami")).await.unwrap().status(), 404);
    assert_eq!(post_as("wrong", calling("whoami")).await.unwrap().status(), 401);
}

#[tokio::test]
async fn a_client_with_a_token_uses_its_tools() {
    let server = spawn().await;
    let connected =
        McpServer::http(server.url()).bearer_token("ada-reads").trusted().connect().await.unwrap();
    let set = connected.tools().await.unwrap();
    let names: Vec<_> = set.definitions().iter().map(|definition| definition.name().to_owned()).collect();
    assert_eq!(names, ["whoami", "list", "delete", "sum"]);
    let call = tool_core::ToolCall::new("call_1", "list", "{}");
    assert_eq!(set.call(&call, &tool_core::ToolContext::new()).await.unwrap().to_string(), "notes");
}

/// Over streams, the host is the user.
#[tokio::test]
async fn streams_have_no_scopes() {
    let server =
        Server::new(tools![list, delete]).protect(resource(), authorize).scope("delete", "files:write");
    let client = Client::connect(Connection::Streams, server).await;
    assert_eq!(client.text("delete", json!({ "name": "notes" })).await, ("deleted notes".into(), false));
}

#[tokio::test]
async fn contradictory_options_are_refused() {
    let new = || Server::new(tools![sum]);
    let table = [
        (new().scope("sum", "a"), "tools need scopes; add `protect`"),
        (
            new().protect(resource(), authorize).bearer_token("secret-token"),
            "`bearer_token` and `protect` both decide about tokens; use one of them",
        ),
        (
            new().protect(resource(), authorize).user(|_| None),
            "`user` and `protect` both decide about users; use one of them",
        ),
        (new().protect(resource(), authorize).scope("sum", "a b"), "`a b` is not a scope"),
        (
            new().protect(resource(), authorize).scope("product", "a"),
            "the scope of `product` is of an unknown tool; use the name of a tool of the server",
        ),
        (
            new().protect(ProtectedResource::new("https://tools.example/mcp"), authorize),
            "the resource names no authorization server; add one",
        ),
    ];
    for (server, expected) in table {
        assert!(!format!("{server:?}").contains("secret-token"));
        let error = server.into_service().unwrap_err();
        assert_eq!(error.kind(), ServerErrorKind::Authorization);
        assert_eq!(error.to_string(), format!("requests cannot be authorized: {expected}"));
    }
}

/// Authorizes requests when the test allows it.
struct SlowAuthorizer {
    asked: mpsc::UnboundedSender<()>,
    released: Arc<Notify>,
}

impl Authorize for SlowAuthorizer {
    fn authorize<'a>(&'a self, _: Credentials<'a>) -> AuthorizeFuture<'a> {
        Box::pin(async {
            self.asked.send(()).unwrap();
            self.released.notified().await;
            Ok(Principal::new("ada", [""; 0]))
        })
    }
}

/// Tokens that nobody knows must not be sent to an authorization server without a limit.
#[tokio::test]
async fn the_number_of_requests_that_are_being_authorized_is_bounded() {
    let (sender, mut asked) = mpsc::unbounded_channel();
    let released = Arc::new(Notify::new());
    let authorizer = SlowAuthorizer { asked: sender, released: Arc::clone(&released) };
    let server = Server::new(tools![sum]).protect(resource(), authorizer).max_concurrent_requests(1);
    let server = server.spawn("127.0.0.1:0").await.unwrap();
    let url = server.url();
    let list = |token| request(&url, "tools/list", json!({})).bearer_auth(token).send();
    let first = tokio::spawn(list("first"));
    asked.recv().await.unwrap();
    assert_eq!(list("second").await.unwrap().status(), 503);
    released.notify_one();
    assert_eq!(first.await.unwrap().unwrap().status(), 200);
    assert!(asked.try_recv().is_err(), "the second token was not sent");
    released.notify_one();
    assert_eq!(list("third").await.unwrap().status(), 200);
}
