//! A fake authorization server, and an MCP server that it protects, for tests of programs whose users log in.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, Method, Response, StatusCode, header};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD as BASE64, URL_SAFE_NO_PAD};
use reqwest::{Url, redirect};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tool_http::random_id;

const MAX_REQUEST_BYTES: usize = 1 << 20;
const RESOURCE_METADATA: &str = "/.well-known/oauth-protected-resource/mcp";

/// Starts a fake authorization server on a port of this machine, with an MCP server that accepts only its tokens.
///
/// Refresh tokens can be used once: if one is used again, all tokens of its login end. Clients can register themselves, or have a
/// metadata document; any `https` URL is taken for one.
///
/// It gives tokens for its own MCP server only, whose [results](OAuthServer::set_result) can be replaced. Every authorization URL that is
/// opened is agreed to: a user that refuses is one that does not open it.
///
/// ```
/// use std::sync::Arc;
///
/// use tool_mcp::McpServer;
/// use tool_mcp::oauth::{Login, OAuth};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let fake = Arc::new(tool_mcp::testing::oauth_server().await?);
/// let user = Arc::clone(&fake);
/// // A user that opens the URL at once, and agrees.
/// let login = Login::loopback(move |login| {
///     let (user, url) = (Arc::clone(&user), login.url.clone());
///     tokio::spawn(async move { user.log_in(&url).await });
/// });
/// let tools = McpServer::http(fake.url()).oauth(OAuth::new(login)).connect().await?;
/// assert_eq!(tools.tools().await?.definitions().len(), 2);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Returns an error if there is no free port.
pub async fn oauth_server() -> io::Result<OAuthServer> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let origin = format!("http://{}", listener.local_addr()?);
    let fake = Arc::new(Fake { origin, state: Mutex::default() });
    let serving = Arc::clone(&fake);
    let handle = move |request| {
        let fake = Arc::clone(&serving);
        async move { Ok::<_, Infallible>(fake.respond(request).await) }
    };
    let router = axum::Router::new().fallback(handle);
    let task = tokio::spawn(async move {
        let _ = axum::serve(listener, router).await;
    });
    Ok(OAuthServer { fake, task })
}

/// A running fake server: see [`oauth_server`]. It ends when it is dropped.
pub struct OAuthServer {
    fake: Arc<Fake>,
    task: JoinHandle<()>,
}

struct Fake {
    origin: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    clients: HashMap<String, Client>,
    codes: HashMap<String, Code>,
    refresh_tokens: HashMap<String, Refresh>,
    access_tokens: HashMap<String, Access>,
    ended_logins: HashSet<String>,
    reused: usize,
    /// Bodies or queries of the requests to each path.
    requests: HashMap<String, Vec<String>>,
    replaced: HashMap<String, (u16, String)>,
    metadata: serde_json::Map<String, Value>,
    paused: HashMap<String, Arc<Pause>>,
    results: HashMap<String, Value>,
    refused_scopes: HashSet<String>,
    lifetime: Option<Duration>,
}

#[derive(Clone, Default)]
struct Client {
    secret: Option<String>,
    redirect_uris: Option<Vec<String>>,
}

struct Code {
    client: String,
    redirect_uri: String,
    challenge: String,
    scope: String,
}

#[derive(Clone)]
struct Refresh {
    client: String,
    scope: String,
    login: String,
    is_used: bool,
}

struct Access {
    scope: String,
    login: String,
}

#[derive(Default)]
struct Pause {
    arrived: Notify,
    resumed: Notify,
}

/// Holds back the responses to the next request: see [`OAuthServer::pause`].
pub struct PausedPath(Arc<Pause>);

impl PausedPath {
    /// Waits until the request was executed. Its response is held back.
    pub async fn arrived(&self) {
        self.0.arrived.notified().await;
    }

    /// Sends the response.
    pub fn resume(&self) {
        self.0.resumed.notify_one();
    }
}

impl fmt::Debug for PausedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PausedPath").finish_non_exhaustive()
    }
}

impl OAuthServer {
    /// Returns the URL of the MCP server. It has the tools `read` and `write`, which take no arguments and return their name and the scopes
    /// of the token, such as `read: read`. Every request needs a login, which asks for the scope `read`, and calls of `write` need the scope `write`.
    #[must_use]
    pub fn url(&self) -> String {
        self.fake.url()
    }

    /// Returns the issuer: the URL of the authorization server.
    #[must_use]
    pub fn issuer(&self) -> String {
        self.fake.origin.clone()
    }

    /// Registers a client, which may have any redirect URI.
    pub fn add_client(&self, id: &str, secret: Option<&str>) {
        let client = Client { secret: secret.map(str::to_owned), redirect_uris: None };
        self.fake.state().clients.insert(id.to_owned(), client);
    }

    /// Opens an authorization URL as a user that agrees. Returns the URL to which the browser is redirected.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not redirect.
    pub async fn approve(&self, authorization_url: &str) -> io::Result<String> {
        let response = get(authorization_url).await?;
        let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
        let status = response.status();
        location.map(str::to_owned).ok_or_else(|| io::Error::other(format!("no redirect, but HTTP {status}")))
    }

    /// Opens an authorization URL as a user that agrees, and follows its redirect.
    ///
    /// # Errors
    ///
    /// Returns an error if one of the two pages cannot be opened.
    pub async fn log_in(&self, authorization_url: &str) -> io::Result<()> {
        let response = get(&self.approve(authorization_url).await?).await?;
        response.error_for_status().map(drop).map_err(io::Error::other)
    }

    /// Grants a scope to nobody from now on.
    pub fn refuse_scope(&self, scope: &str) {
        self.fake.state().refused_scopes.insert(scope.to_owned());
    }

    /// Ends all access tokens. Their logins can be renewed.
    pub fn expire_access_tokens(&self) {
        self.fake.state().access_tokens.clear();
    }

    /// States another lifetime of the access tokens from now on, in whole seconds, in place of an hour. They are accepted until
    /// [`expire_access_tokens`](Self::expire_access_tokens).
    pub fn set_token_lifetime(&self, lifetime: Duration) {
        self.fake.state().lifetime = Some(lifetime);
    }

    /// Ends all logins, so that users have to log in again.
    pub fn end_logins(&self) {
        let mut state = self.fake.state();
        state.access_tokens.clear();
        state.refresh_tokens.clear();
    }

    /// Returns how many refresh tokens were used more than once, each of which ended a login.
    #[must_use]
    pub fn reused_refresh_tokens(&self) -> usize {
        self.fake.state().reused
    }

    /// Returns the bodies of the requests to a path, such as `/token`, or their queries if they have no body.
    #[must_use]
    pub fn requests(&self, path: &str) -> Vec<String> {
        self.fake.state().requests.get(path).cloned().unwrap_or_default()
    }

    /// Responds to all further requests to a path with this status and body.
    pub fn respond(&self, path: &str, status: u16, body: impl Into<String>) {
        self.fake.state().replaced.insert(path.to_owned(), (status, body.into()));
    }

    /// Replaces a member of the metadata of the authorization server; `null` removes it.
    pub fn set_metadata(&self, name: &str, value: Value) {
        self.fake.state().metadata.insert(name.to_owned(), value);
    }

    /// Answers all further requests of a method of MCP, such as `tools/list`, with this result, if they have a valid token.
    pub fn set_result(&self, method: &str, result: Value) {
        self.fake.state().results.insert(method.to_owned(), result);
    }

    /// Holds back the response to the next request to a path.
    #[must_use]
    pub fn pause(&self, path: &str) -> PausedPath {
        let pause = Arc::new(Pause::default());
        self.fake.state().paused.insert(path.to_owned(), Arc::clone(&pause));
        PausedPath(pause)
    }
}

impl Drop for OAuthServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for OAuthServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthServer").field("url", &self.url()).finish_non_exhaustive()
    }
}

async fn get(url: &str) -> io::Result<reqwest::Response> {
    let url: Url = url.parse().map_err(io::Error::other)?;
    let client = tool_http::client::new_client(&url).map_err(io::Error::other)?;
    let client = client.redirect(redirect::Policy::none()).build().map_err(io::Error::other)?;
    client.get(url).send().await.map_err(io::Error::other)
}

fn json_response(status: u16, body: &Value) -> Response<Body> {
    respond_with(status, body.to_string())
}

fn respond_with(status: u16, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

fn with_header(mut response: Response<Body>, name: header::HeaderName, value: &str) -> Response<Body> {
    if let Ok(value) = value.parse() {
        response.headers_mut().insert(name, value);
    }
    response
}

/// Decodes the parameters of a form or a query.
fn parameters(text: &str) -> HashMap<String, String> {
    let url = Url::parse(&format!("form:?{text}"));
    url.map(|url| url.query_pairs().into_owned().collect()).unwrap_or_default()
}

impl Fake {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn url(&self) -> String {
        format!("{}/mcp", self.origin)
    }

    async fn respond(&self, request: Request) -> Response<Body> {
        let (head, body) = request.into_parts();
        let (path, query) = (head.uri.path().to_owned(), head.uri.query().unwrap_or_default().to_owned());
        let body = to_bytes(body, MAX_REQUEST_BYTES).await.unwrap_or_default();
        let body = String::from_utf8_lossy(&body).into_owned();
        let (replaced, paused) = {
            let mut state = self.state();
            let recorded = if body.is_empty() { query.clone() } else { body.clone() };
            state.requests.entry(path.clone()).or_default().push(recorded);
            (state.replaced.get(&path).cloned(), state.paused.remove(&path))
        };
        let response = match (&*path, replaced) {
            (_, Some((status, body))) => respond_with(status, body),
            ("/mcp", _) => self.mcp(&head.method, &head.headers, &body),
            (RESOURCE_METADATA, _) => json_response(
                200,
                &json!({ "resource": self.url(), "authorization_servers": [self.origin], "scopes_supported": ["read", "write"] }),
            ),
            ("/.well-known/oauth-authorization-server", _) => json_response(200, &self.metadata()),
            ("/register", _) => self.register(&body),
            ("/authorize", _) => self.authorize(&parameters(&query)),
            ("/revoke", _) => self.revoke(&parameters(&body)),
            ("/token", _) => self.token(&head.headers, &parameters(&body)),
            _ => json_response(404, &json!({})),
        };
        if let Some(paused) = paused {
            paused.arrived.notify_one();
            paused.resumed.notified().await;
        }
        response
    }

    fn metadata(&self) -> Value {
        let origin = &self.origin;
        let mut metadata = json!({
            "issuer": origin,
            "authorization_endpoint": format!("{origin}/authorize"),
            "token_endpoint": format!("{origin}/token"),
            "registration_endpoint": format!("{origin}/register"),
            "revocation_endpoint": format!("{origin}/revoke"),
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
            "client_id_metadata_document_supported": true,
            "authorization_response_iss_parameter_supported": true,
        });
        for (name, value) in &self.state().metadata {
            metadata[name] = value.clone();
        }
        if let Some(members) = metadata.as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
        metadata
    }

    fn register(&self, body: &str) -> Response<Body> {
        let Ok(body) = serde_json::from_str::<Value>(body) else { return json_response(400, &json!({})) };
        let uris = body["redirect_uris"].as_array().into_iter().flatten();
        let redirect_uris = Some(uris.filter_map(Value::as_str).map(str::to_owned).collect());
        let id = random_id("client_");
        self.state().clients.insert(id.clone(), Client { secret: None, redirect_uris });
        json_response(201, &json!({ "client_id": id, "token_endpoint_auth_method": "none" }))
    }

    fn find_client(&self, id: &str) -> Option<Client> {
        let known = self.state().clients.get(id).cloned();
        known.or_else(|| id.starts_with("https://").then(Client::default))
    }

    fn authorize(&self, query: &HashMap<String, String>) -> Response<Body> {
        let get = |name: &str| query.get(name).cloned().unwrap_or_default();
        let redirect_uri = get("redirect_uri");
        let client = self.find_client(&get("client_id"));
        let is_allowed =
            |client: &Client| client.redirect_uris.as_ref().is_none_or(|uris| uris.contains(&redirect_uri));
        if !client.as_ref().is_some_and(is_allowed) {
            return json_response(400, &json!({ "error": "unknown client or redirect URI" }));
        }
        let Ok(mut url) = redirect_uri.parse::<Url>() else { return json_response(400, &json!({})) };
        let is_valid = get("code_challenge_method") == "S256"
            && get("response_type") == "code"
            && get("resource") == self.url();
        let code = random_id("code_");
        let (name, value) = if is_valid { ("code", &*code) } else { ("error", "invalid_request") };
        url.query_pairs_mut().extend_pairs([(name, value), ("state", &get("state")), ("iss", &self.origin)]);
        if is_valid {
            let mut state = self.state();
            let scopes = get("scope");
            let scopes = scopes.split_whitespace().filter(|scope| !state.refused_scopes.contains(*scope));
            let scope = scopes.collect::<Vec<_>>().join(" ");
            let challenge = get("code_challenge");
            let code_of = Code { client: get("client_id"), redirect_uri, challenge, scope };
            state.codes.insert(code, code_of);
        }
        with_header(json_response(302, &json!({})), header::LOCATION, url.as_str())
    }

    /// Ends the login of a refresh token.
    fn revoke(&self, form: &HashMap<String, String>) -> Response<Body> {
        // Servers of the Python SDK demand the member, which is empty for clients without a secret.
        if !form.contains_key("client_secret") {
            return json_response(400, &json!({ "error": "invalid_request" }));
        }
        let mut state = self.state();
        let login = form.get("token").and_then(|token| Some(state.refresh_tokens.get(token)?.login.clone()));
        state.ended_logins.extend(login);
        json_response(200, &json!({}))
    }

    fn token(&self, headers: &HeaderMap, form: &HashMap<String, String>) -> Response<Body> {
        let get = |name: &str| form.get(name).cloned().unwrap_or_default();
        let error = |error: &str| {
            json_response(400, &json!({ "error": error, "error_description": get("refresh_token") }))
        };
        let basic =
            headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Basic "));
        let basic = basic.and_then(|pair| String::from_utf8(BASE64.decode(pair).ok()?).ok());
        let basic = basic.as_deref().and_then(|pair| pair.split_once(':'));
        let (id, secret) = match basic {
            Some((id, secret)) => {
                let decode = |text| parameters(&format!("x={text}")).remove("x").unwrap_or_default();
                (decode(id), Some(decode(secret)))
            }
            None => (get("client_id"), form.get("client_secret").cloned()),
        };
        if self.find_client(&id).is_none_or(|client| client.secret != secret) {
            return error("invalid_client");
        }
        if get("resource") != self.url() {
            return error("invalid_target");
        }
        let mut state = self.state();
        let (scope, login) = match &*get("grant_type") {
            "authorization_code" => {
                let Some(code) = state.codes.remove(&get("code")) else { return error("invalid_grant") };
                let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(get("code_verifier")));
                let found = (code.client, code.redirect_uri, code.challenge);
                if found != (id.clone(), get("redirect_uri"), challenge) {
                    return error("invalid_grant");
                }
                (code.scope, random_id("login_"))
            }
            "refresh_token" => {
                let token = get("refresh_token");
                let Some(refresh) = state.refresh_tokens.get_mut(&token) else {
                    return error("invalid_grant");
                };
                let known = refresh.clone();
                refresh.is_used = true;
                if known.is_used {
                    state.reused += 1;
                    state.ended_logins.insert(known.login.clone());
                }
                if known.client != id || state.ended_logins.contains(&known.login) {
                    return error("invalid_grant");
                }
                (known.scope, known.login)
            }
            "client_credentials" if secret.is_some() => (get("scope"), random_id("login_")),
            _ => return error("unsupported_grant_type"),
        };
        let (access_token, refresh_token) = (random_id("access_"), random_id("refresh_"));
        let access = Access { scope: scope.clone(), login: login.clone() };
        state.access_tokens.insert(access_token.clone(), access);
        let lifetime = state.lifetime.map_or(3600, |lifetime| lifetime.as_secs());
        let mut response = json!({ "access_token": access_token, "token_type": "Bearer", "expires_in": lifetime, "scope": scope });
        if get("grant_type") != "client_credentials" {
            response["refresh_token"] = json!(refresh_token);
            state.refresh_tokens.insert(refresh_token, Refresh { client: id, scope, login, is_used: false });
        }
        json_response(200, &response)
    }

    /// The MCP server.
    fn mcp(&self, method: &Method, headers: &HeaderMap, body: &str) -> Response<Body> {
        let token =
            headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let (scope, challenge) = {
            let state = self.state();
            let access = token.and_then(|token| state.access_tokens.get(token));
            let access = access.filter(|access| !state.ended_logins.contains(&access.login));
            let challenge = match state.replaced.contains_key(RESOURCE_METADATA) {
                // Clients try the well-known paths.
                true => "Bearer".to_owned(),
                false => format!("Bearer resource_metadata=\"{}{RESOURCE_METADATA}\",", self.origin),
            };
            (access.map(|access| access.scope.clone()), challenge)
        };
        let Some(scope) = scope else {
            let challenge = format!("{challenge} scope=\"read\"");
            return with_header(json_response(401, &json!({})), header::WWW_AUTHENTICATE, &challenge);
        };
        if method != Method::POST {
            return json_response(405, &json!({}));
        }
        let message: Value = serde_json::from_str(body).unwrap_or_default();
        let name = message["params"]["name"].as_str().unwrap_or_default();
        let method = message["method"].as_str().unwrap_or_default();
        let replaced = self.state().results.get(method).cloned();
        let result = match method {
            _ if replaced.is_some() => replaced.unwrap_or_default(),
            "initialize" => json!({
                "protocolVersion": "2025-06-18",
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "protected", "version": "1.0" },
            }),
            "tools/list" => {
                let tool = |name| json!({ "name": name, "inputSchema": { "type": "object" } });
                json!({ "tools": [tool("read"), tool("write")] })
            }
            "tools/call" if name == "write" && !scope.split(' ').any(|scope| scope == "write") => {
                let challenge = format!("{challenge} error=\"insufficient_scope\", scope=\"write\"");
                return with_header(json_response(403, &json!({})), header::WWW_AUTHENTICATE, &challenge);
            }
            "tools/call" => json!({ "content": [{ "type": "text", "text": format!("{name}: {scope}") }] }),
            _ => return json_response(202, &json!({})),
        };
        json_response(200, &json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
    }
}
