//! Users, servers and calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tool_core::{ToolCall, ToolContext, ToolError};
use tool_mcp::oauth::{InMemoryCredentials, Login, OAuth};
use tool_mcp::testing::{OAuthServer, oauth_server};
use tool_mcp::{McpError, McpErrorKind, McpServer, McpTools};

/// The redirect URI of a program with a route.
pub(crate) const ROUTE: &str = "https://app.example/oauth/callback";

pub(crate) async fn fake() -> Arc<OAuthServer> {
    Arc::new(oauth_server().await.unwrap())
}

/// Returns the login of a user that agrees at once, and how often that has happened.
pub(crate) fn willing_user(fake: &Arc<OAuthServer>) -> (Login, Arc<AtomicUsize>) {
    let (fake, logins) = (Arc::clone(fake), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&logins);
    let login = Login::loopback(move |login| {
        count.fetch_add(1, Ordering::SeqCst);
        let (fake, url) = (Arc::clone(&fake), login.url.clone());
        tokio::spawn(async move {
            if let Err(error) = fake.log_in(&url).await {
                eprintln!("{error}");
                // The login is given up at once.
                tokio::time::pause();
            }
        });
    });
    (login, logins)
}

/// Returns a server whose user has logged in through a route, and the store.
pub(crate) async fn logged_in(fake: &OAuthServer) -> (McpServer, InMemoryCredentials) {
    let store = InMemoryCredentials::default();
    let server = route_server(fake, store.clone());
    finish(fake, &server).await.unwrap();
    (server, store)
}

/// Returns a server with a route.
pub(crate) fn route_server(fake: &OAuthServer, store: InMemoryCredentials) -> McpServer {
    let oauth = OAuth::new(Login::route(ROUTE)).user("ada").store(store);
    McpServer::http(fake.url()).name("tickets").oauth(oauth).trusted()
}

/// Logs in as a user that agrees.
pub(crate) async fn finish(fake: &OAuthServer, server: &McpServer) -> Result<(), McpError> {
    let url = server.start_login().await?.expect("a login is needed");
    server.finish_login(&fake.approve(&url).await.unwrap()).await
}

/// Calls a tool and returns the text of its output.
pub(crate) async fn call(tools: &McpTools, name: &str) -> Result<String, ToolError> {
    let set = tools.tools().await.unwrap();
    let call = ToolCall::new("call_1", name, json!({}).to_string());
    set.call(&call, &ToolContext::new()).await.map(|output| output.to_string())
}

/// Returns the error of a call that failed.
pub(crate) async fn call_error(tools: &McpTools, name: &str) -> McpError {
    let error = call(tools, name).await.unwrap_err();
    error.failure().unwrap().downcast_ref::<McpError>().unwrap().clone()
}

/// Returns the problem of an error, without the name of the server.
pub(crate) fn problem(error: &McpError, kind: McpErrorKind) -> String {
    assert_eq!(error.kind(), kind, "{error}");
    error.to_string().strip_prefix("the MCP server `tickets` ").unwrap().to_owned()
}

/// Replaces the value of a parameter in a URL, or removes the parameter.
pub(crate) fn with_parameter(url: &str, name: &str, value: Option<&str>) -> String {
    let mut url: reqwest::Url = url.parse().unwrap();
    let mut pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    pairs.retain(|(found, _)| found != name);
    pairs.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    url.query_pairs_mut().clear().extend_pairs(pairs);
    url.into()
}

/// Returns a parameter of a form, or of the query of a URL.
pub(crate) fn parameter(text: &str, name: &str) -> Option<String> {
    let query = text.split_once('?').map_or(text, |(_, query)| query);
    let url: reqwest::Url = format!("form:?{query}").parse().unwrap();
    url.query_pairs().find(|(found, _)| found == name).map(|(_, value)| value.into_owned())
}
