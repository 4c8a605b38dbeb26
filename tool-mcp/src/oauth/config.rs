//! How a program obtains tokens, as it configures it.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};

use super::error::OAuthError;
use super::request::check_url;
use super::store::{CredentialStore, InMemoryCredentials};

type Show = Arc<dyn Fn(&LoginPrompt) + Send + Sync>;
type Ask = Arc<dyn Fn(LoginPrompt) -> Pin<Box<dyn Future<Output = io::Result<String>> + Send>> + Send + Sync>;

/// A login that awaits its user: show where it leads and what it is for, because the page of the authorization server need not say it.
#[derive(Clone)]
#[non_exhaustive]
pub struct LoginPrompt {
    /// The authorization URL, to be opened in a browser.
    ///
    /// A server chose it: never make it a part of the command line of a shell, `cmd` or PowerShell, but an argument of a process.
    /// Characters with a meaning for shells are percent-encoded, except `&`, `?`, `~` and `%`.
    pub url: String,
    /// The URL of the MCP server that will get the tokens, without a query.
    pub server: String,
    /// The authorization server, which the MCP server named.
    pub issuer: String,
    /// What is requested.
    pub scopes: Vec<String>,
}

/// Shows no secrets.
impl fmt::Debug for LoginPrompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginPrompt").field("server", &self.server).finish_non_exhaustive()
    }
}

/// How a person logs in: where the authorization URL is shown, and how its redirect comes back.
///
/// This crate never opens or requests the authorization URL by itself.
#[derive(Clone)]
pub struct Login(LoginKind);

#[derive(Clone)]
pub(super) enum LoginKind {
    Loopback { port: u16, show: Show },
    Paste { redirect_uri: String, ask: Ask },
    Route(Route),
}

/// A route of the program, and the page where its users start logins.
#[derive(Clone)]
pub(super) struct Route {
    pub(super) redirect_uri: String,
    pub(super) page: Option<String>,
}

impl Login {
    /// Shows the URL to the user of this machine, and waits up to five minutes for the redirect on a port of `127.0.0.1`. The function
    /// prints the URL or opens a browser, and must not block.
    ///
    /// The port is chosen by the system, as authorization servers have to allow for programs of a user. Use
    /// [`port`](Self::port) for a server that requires the redirect URI that was registered.
    #[must_use]
    pub fn loopback(show: impl Fn(&LoginPrompt) + Send + Sync + 'static) -> Self {
        Self(LoginKind::Loopback { port: 0, show: Arc::new(show) })
    }

    /// Sets the port of [`loopback`](Self::loopback): the redirect URI is then `http://127.0.0.1:PORT/callback`.
    #[must_use]
    pub fn port(self, port: u16) -> Self {
        match self.0 {
            LoginKind::Loopback { show, .. } => Self(LoginKind::Loopback { port, show }),
            other => Self(other),
        }
    }

    /// Shows the URL to a user who has the browser elsewhere, and asks for the URL to which it was redirected, such as
    /// `http://127.0.0.1/callback`: the page does not exist, but the browser's address bar has its URL. It must be pasted within five
    /// minutes.
    ///
    /// ```
    /// use tool_mcp::oauth::Login;
    ///
    /// # async fn read_line() -> std::io::Result<String> { Ok(String::new()) }
    /// let login = Login::paste("http://127.0.0.1/callback", |login| async move {
    ///     println!("for {}, open {} and paste the URL of the page that cannot be found:", login.server, login.url);
    ///     read_line().await
    /// });
    /// # let _ = login;
    /// ```
    #[must_use]
    pub fn paste<Asking>(
        redirect_uri: impl Into<String>,
        ask: impl Fn(LoginPrompt) -> Asking + Send + Sync + 'static,
    ) -> Self
    where
        Asking: Future<Output = io::Result<String>> + Send + 'static,
    {
        let ask: Ask = Arc::new(move |prompt| Box::pin(ask(prompt)));
        Self(LoginKind::Paste { redirect_uri: redirect_uri.into(), ask })
    }

    /// Receives the redirect on a route of the program, such as `https://app.example/oauth/callback`.
    ///
    /// The program calls [`McpServer::start_login`](crate::McpServer::start_login) and sends the browser to the URL that it returns; the
    /// route calls [`McpServer::finish_login`](crate::McpServer::finish_login), in any process with the same store. Both
    /// need the [`user`](OAuth::user) of the browser's session, so that nobody can log a user in to the account of another one: never show the URL
    /// to anybody else. Without a [`page`](Self::page), a call that needs a login fails.
    #[must_use]
    pub fn route(redirect_uri: impl Into<String>) -> Self {
        Self(LoginKind::Route(Route { redirect_uri: redirect_uri.into(), page: None }))
    }

    /// Sets the page of the program where a login by a [`route`](Self::route) starts, such as `https://app.example/connect/tickets`: its handler takes
    /// the user from the session, calls [`McpServer::start_login`](crate::McpServer::start_login), and redirects. A run whose call needs a login
    /// then waits, and its question has this URL, which is the same for all users and tells its readers nothing.
    ///
    /// The URL must be absolute, with `https`, or with `http` on this machine.
    ///
    /// ```
    /// use tool_mcp::oauth::Login;
    ///
    /// let login = Login::route("https://app.example/oauth/callback").page("https://app.example/connect/tickets");
    /// # let _ = login;
    /// ```
    #[must_use]
    pub fn page(self, url: impl Into<String>) -> Self {
        match self.0 {
            LoginKind::Route(route) => Self(LoginKind::Route(Route { page: Some(url.into()), ..route })),
            other => Self(other),
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").finish_non_exhaustive()
    }
}

/// How tokens for an MCP server are obtained: by OAuth 2.1, as the protocol specifies it.
///
/// The authorization server is found through the MCP server. The client is, in this order: one that was [registered](Self::client) with
/// that authorization server, one with a [metadata document](Self::client_metadata_url), or one that registers itself, and
/// is used again for an hour if its redirect URI is the same. With registered clients and no metadata document, other authorization servers are refused.
///
/// Tokens are sent to their server only, and never follow a redirect. One that the server rejects is renewed, and the request is sent
/// again: of the processes that share a [store](Self::store), one renews a login at a time.
///
/// ```no_run
/// use tool_mcp::McpServer;
/// use tool_mcp::oauth::{FileCredentials, Login, OAuth};
///
/// # async fn run() -> Result<(), tool_mcp::McpError> {
/// let oauth = OAuth::new(Login::loopback(|login| println!("To log in to {}, open {}", login.server, login.url)))
///     .store(FileCredentials::new("/home/me/.config/my-program/logins.json"));
/// let tools = McpServer::http("https://tickets.example.org/mcp").oauth(oauth).connect().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct OAuth {
    pub(super) grant: Grant,
    pub(super) clients: Vec<RegisteredClient>,
    pub(super) client_metadata_url: Option<String>,
    /// Authorization servers that may be on this machine or in a private network.
    local_issuers: Vec<String>,
    pub(super) client_name: String,
    pub(super) user: String,
    /// `None` allows all.
    pub(super) scopes: Option<Vec<String>>,
    pub(super) store: Arc<dyn CredentialStore>,
}

#[derive(Clone)]
pub(super) enum Grant {
    /// A person logs in.
    AuthorizationCode(LoginKind),
    ClientCredentials,
}

/// A client that was registered with one authorization server.
#[derive(Clone)]
pub(super) struct RegisteredClient {
    pub(super) issuer: String,
    pub(super) id: String,
    pub(super) secret: Option<SecretString>,
}

impl RegisteredClient {
    /// Returns a copy of the secret, to be sent.
    pub(super) fn secret(&self) -> Option<String> {
        self.secret.as_ref().map(|secret| secret.expose_secret().to_owned())
    }
}

impl OAuth {
    /// Obtains tokens for a person, who logs in this way.
    #[must_use]
    pub fn new(login: Login) -> Self {
        Self::with_grant(Grant::AuthorizationCode(login.0))
    }

    fn with_grant(grant: Grant) -> Self {
        Self {
            grant,
            clients: Vec::new(),
            client_metadata_url: None,
            local_issuers: Vec::new(),
            client_name: env!("CARGO_PKG_NAME").to_owned(),
            user: String::new(),
            scopes: None,
            store: Arc::new(InMemoryCredentials::default()),
        }
    }

    /// Obtains tokens for the program itself, with the secret of a client that was registered with the authorization server
    /// `issuer`, exactly as its metadata states it. Nobody logs in, so only [`scopes`](Self::scopes) that the author allows are requested: by default none, which leaves
    /// them to the authorization server.
    ///
    /// ```
    /// use tool_mcp::oauth::OAuth;
    ///
    /// let oauth = OAuth::client_credentials("https://login.example", "nightly-report", "secret");
    /// # let _ = oauth;
    /// ```
    #[must_use]
    pub fn client_credentials(
        issuer: impl Into<String>,
        id: impl Into<String>,
        secret: impl Into<SecretString>,
    ) -> Self {
        Self::with_grant(Grant::ClientCredentials).confidential_client(issuer, id, secret).scopes([""; 0])
    }

    /// Adds a client without a secret that was registered with the authorization server `issuer`, exactly as its metadata states it.
    #[must_use]
    pub fn client(mut self, issuer: impl Into<String>, id: impl Into<String>) -> Self {
        self.clients.push(RegisteredClient { issuer: issuer.into(), id: id.into(), secret: None });
        self
    }

    /// Adds a client with a secret, which is sent to the authorization server `issuer` only.
    #[must_use]
    pub fn confidential_client(
        mut self,
        issuer: impl Into<String>,
        id: impl Into<String>,
        secret: impl Into<SecretString>,
    ) -> Self {
        let secret = Some(secret.into());
        self.clients.push(RegisteredClient { issuer: issuer.into(), id: id.into(), secret });
        self
    }

    /// Allows an authorization server that is on this machine or in a private network, and not at the MCP server itself, which must be in
    /// such a place as well. The issuer is written exactly as its metadata states it. [Registered clients](Self::client) need no such permission.
    ///
    /// ```
    /// use tool_mcp::oauth::{Login, OAuth};
    ///
    /// // For a program in development:
    /// let oauth = OAuth::new(Login::loopback(|login| println!("open {}", login.url))).local_issuer("http://127.0.0.1:8080");
    /// # let _ = oauth;
    /// ```
    #[must_use]
    pub fn local_issuer(mut self, issuer: impl Into<String>) -> Self {
        self.local_issuers.push(issuer.into());
        self
    }

    /// Sets the `https` URL of a document that describes the client, for authorization servers that support it. It is then the
    /// id of the client.
    #[must_use]
    pub fn client_metadata_url(mut self, url: impl Into<String>) -> Self {
        self.client_metadata_url = Some(url.into());
        self
    }

    /// Sets the name that users read when a client that registered itself asks for their consent. The default is `tool-mcp`.
    #[must_use]
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.client_name = name.into();
        self
    }

    /// Requests exactly these scopes, whatever the MCP server states. A call that needs another one fails.
    ///
    /// By default, those are requested that the server names, about which a user who logs in decides, and `offline_access` where the authorization
    /// server supports it.
    #[must_use]
    pub fn scopes<Scope: Into<String>>(mut self, scopes: impl IntoIterator<Item = Scope>) -> Self {
        self.scopes = Some(scopes.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the user of the program that logs in, for a program with many users: each has tokens of their own. Take it from the
    /// session of the user, never from a request's parameters. [`Login::route`] requires it. With
    /// [`McpServer::per_user`](crate::McpServer::per_user), it is the user of each run.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = user.into();
        self
    }

    /// Sets the store for logins. By default, they are lost at the end of the program; clones share them.
    #[must_use]
    pub fn store(mut self, store: impl CredentialStore) -> Self {
        self.store = Arc::new(store);
        self
    }

    /// Returns the route of the program to which redirects come, if they do.
    pub(super) fn route(&self) -> Option<&Route> {
        match &self.grant {
            Grant::AuthorizationCode(LoginKind::Route(route)) => Some(route),
            _ => None,
        }
    }

    /// Returns `true` if a scope can be requested. Servers could show anything to the user in one that is not well-formed.
    pub(super) fn allows_scope(&self, scope: &String) -> bool {
        let is_valid = |byte: u8| byte.is_ascii_graphic() && !b"\"\\".contains(&byte);
        !scope.is_empty()
            && scope.bytes().all(is_valid)
            && self.scopes.as_ref().is_none_or(|allowed| allowed.contains(scope))
    }

    /// Checks a URL of an authorization server that an MCP server named.
    pub(super) fn check_url(&self, text: &str, issuer: &str, server: &Url) -> Result<Url, OAuthError> {
        let is_local = self.local_issuers.iter().any(|local| local == issuer);
        check_url(text, server, is_local || self.registered_client(issuer).is_some())
    }

    /// Returns `true` if only authorization servers with a registered client are accepted.
    pub(super) fn is_bound(&self) -> bool {
        !self.clients.is_empty() && self.client_metadata_url.is_none()
    }

    /// Returns what identifies the client where it is not registered. It is empty if nothing was configured.
    pub(super) fn unregistered_client(&self) -> &str {
        self.client_metadata_url.as_deref().unwrap_or_default()
    }

    /// Returns what identifies the clients with which a user can have logged in.
    pub(super) fn clients_of_logins(&self) -> impl Iterator<Item = &str> {
        let registered = self.clients.iter().map(|client| &*client.id);
        registered.chain((!self.is_bound()).then(|| self.unregistered_client()))
    }

    /// Returns `true` if a client was configured with this id.
    pub(super) fn is_client(&self, id: &str) -> bool {
        self.client_metadata_url.as_deref() == Some(id) || self.clients.iter().any(|client| client.id == id)
    }

    /// Returns the client that was registered with the authorization server.
    pub(super) fn registered_client(&self, issuer: &str) -> Option<&RegisteredClient> {
        self.clients.iter().find(|client| client.issuer == issuer)
    }
}

/// Shows no secrets.
impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth").field("user", &self.user).finish_non_exhaustive()
    }
}
