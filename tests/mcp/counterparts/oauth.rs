//! Logins at an authorization server that nobody here wrote, for tools of this project's own server.

use std::collections::HashSet;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::process::{Child, Command};
use tool_core::{ToolSet, tool, tools};
use tool_mcp::oauth::{InMemoryCredentials, Login, OAuth};
use tool_mcp::server::{
    Authorize, AuthorizeError, AuthorizeFuture, Credentials, Principal, ProtectedResource, RunningServer,
    Server,
};
use tool_mcp::{McpErrorKind, McpServer, McpUserTools};

use crate::server::client::http;

use super::{call, installed_modules, node, until_listening};

const CALLBACK: &str = "https://app.example/callback";

#[tool("Reads")]
fn read() -> &'static str {
    "read"
}

#[tool("Writes")]
fn write() -> &'static str {
    "written"
}

/// Asks the authorization server whether a token is valid. Rejects those that have expired by its own clock.
#[derive(Clone, Default)]
struct Checking {
    issuer: String,
    resource: String,
    seen: Arc<Mutex<HashSet<String>>>,
    expired: Arc<Mutex<HashSet<String>>>,
}

impl Checking {
    /// Lets all tokens expire.
    fn expire(&self) {
        self.expired.lock().unwrap().extend(self.seen.lock().unwrap().drain());
    }
}

impl Authorize for Checking {
    fn authorize<'a>(&'a self, credentials: Credentials<'a>) -> AuthorizeFuture<'a> {
        Box::pin(async move {
            let token = credentials.bearer_token().ok_or_else(AuthorizeError::unauthenticated)?;
            if self.expired.lock().unwrap().contains(token) {
                return Err(AuthorizeError::unauthenticated());
            }
            self.seen.lock().unwrap().insert(token.to_owned());
            let known = get(&format!("{}/check", self.issuer), ("token", token)).await;
            match serde_json::from_str::<Option<(String, String, String)>>(&known).unwrap() {
                Some((audience, user, scope)) if audience == self.resource => {
                    Ok(Principal::new(user, scope.split(' ')))
                }
                _ => Err(AuthorizeError::unauthenticated()),
            }
        })
    }
}

async fn get(url: &str, (name, value): (&str, &str)) -> String {
    let mut url = reqwest::Url::parse(url).unwrap();
    url.query_pairs_mut().append_pair(name, value);
    open(url).await
}

async fn open(url: reqwest::Url) -> String {
    http().get(url).send().await.unwrap().text().await.unwrap()
}

/// Both servers.
struct Servers {
    checking: Checking,
    _authorization: Child,
    _tools: RunningServer,
}

impl Servers {
    async fn start() -> Self {
        let modules = installed_modules();
        // The resource is known before its server, and the issuer before its own.
        let [issuer, tools] = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let [issuer, address] = [issuer, tools].map(|listener| listener.local_addr().unwrap());
        let resource = format!("http://{address}/mcp");
        let mut command = Command::new(node(&modules));
        command
            .arg(modules.join("oauth.mjs"))
            .env("PORT", issuer.port().to_string())
            .env("RESOURCE", &resource);
        let mut child =
            command.stderr(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true).spawn().unwrap();
        until_listening(&mut child).await;
        let checking = Checking {
            issuer: format!("http://{issuer}"),
            resource: resource.clone(),
            ..Checking::default()
        };
        let protected = ProtectedResource::new(&resource).authorization_server(&checking.issuer);
        let server = Server::new(tools![read, write]).scope("read", "read").scope("write", "write");
        let tools = server
            .protect(protected.scopes(["read", "write"]), checking.clone())
            .spawn(address)
            .await
            .unwrap();
        Self { checking, _authorization: child, _tools: tools }
    }

    /// Opens a login page. Returns where the browser is sent.
    async fn browse(&self, url: &str) -> String {
        get(&format!("{}/browse", self.checking.issuer), ("url", url)).await
    }

    fn pool(&self, oauth: OAuth) -> McpUserTools {
        let oauth = oauth.local_issuer(&self.checking.issuer);
        McpServer::http(&self.checking.resource).name("files").oauth(oauth).trusted().per_user()
    }

    async fn log_in(&self, pool: &McpUserTools) {
        let url = pool.server("ada").start_login().await.unwrap().unwrap();
        let redirect = self.browse(&url).await;
        let issuer = format!("iss={}", urlencoded(&self.checking.issuer));
        assert!(redirect.contains(&issuer), "{redirect}");
        pool.server("ada").finish_login(&redirect).await.unwrap();
    }
}

fn urlencoded(text: &str) -> String {
    let mut url = reqwest::Url::parse("form:").unwrap();
    url.query_pairs_mut().append_key_only(text);
    url.query().unwrap().to_owned()
}

async fn set(pool: &McpUserTools) -> ToolSet {
    pool.tools(Some(&"ada".into())).await.unwrap()
}

/// As a registered client, one with a metadata document, and one that registers itself; by a route and by a listener on this machine.
#[tokio::test]
#[ignore = "needs servers that `tests/mcp/everything` installs"]
async fn users_log_in_and_out() {
    let servers = Servers::start().await;
    let route = || OAuth::new(Login::route(CALLBACK)).store(InMemoryCredentials::default());
    let clients = [
        route().confidential_client(&servers.checking.issuer, "registered", "the secret of the client"),
        route().client_metadata_url("https://app.example/client.json"),
        route(),
    ];
    for oauth in clients {
        let pool = servers.pool(oauth);
        servers.log_in(&pool).await;
        let tools = set(&pool).await;
        for (tool, expected) in [("read", "read"), ("write", "written")] {
            assert_eq!(call(&tools, tool, json!({})).await.unwrap().to_string(), expected);
        }
        pool.log_out("ada").await.unwrap();
        let error = call(&tools, "read", json!({})).await.unwrap_err().to_string();
        assert!(error.contains("requires a login"), "{error}");
    }

    let (issuer, store) = (servers.checking.issuer.clone(), InMemoryCredentials::default());
    let login = Login::loopback(move |login| {
        let (browse, url) = (format!("{issuer}/browse"), login.url.clone());
        tokio::spawn(async move { open(get(&browse, ("url", &url)).await.parse().unwrap()).await });
    });
    let pool = servers.pool(OAuth::new(login).store(store));
    assert_eq!(call(&set(&pool).await, "read", json!({})).await.unwrap().to_string(), "read");
}

/// The authorization server ends a login whose refresh token is used twice.
#[tokio::test]
#[ignore = "needs servers that `tests/mcp/everything` installs"]
async fn a_rotated_login_survives_pools_that_renew_it_at_once() {
    let servers = Servers::start().await;
    let store = InMemoryCredentials::default();
    let pools: Vec<_> =
        (0..4).map(|_| servers.pool(OAuth::new(Login::route(CALLBACK)).store(store.clone()))).collect();
    servers.log_in(&pools[0]).await;
    let mut sets = Vec::new();
    for pool in &pools {
        sets.push(set(pool).await);
    }
    for _ in 0..10 {
        servers.checking.expire();
        let calls = sets.iter().map(|set| call(set, "read", json!({})));
        for output in futures_util::future::join_all(calls).await {
            assert_eq!(output.unwrap().to_string(), "read");
        }
    }
}

#[tokio::test]
#[ignore = "needs servers that `tests/mcp/everything` installs"]
async fn a_redirect_of_another_issuer_is_refused() {
    let servers = Servers::start().await;
    let pool = servers.pool(OAuth::new(Login::route(CALLBACK)));
    let url = pool.server("ada").start_login().await.unwrap().unwrap();
    let redirect = servers.browse(&url).await;
    let issuer = urlencoded(&servers.checking.issuer);
    for other in [redirect.replace(&issuer, "https%3A%2F%2Fevil.example"), redirect.replace("iss=", "is=")] {
        let error = pool.server("ada").finish_login(&other).await.unwrap_err();
        assert_ne!(error.kind(), McpErrorKind::LoginRequired, "{error}");
        assert!(pool.tools(Some(&"ada".into())).await.is_err());
    }
}
