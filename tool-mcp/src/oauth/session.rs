//! The tokens of one server: logging in, renewing, and asking for more scopes.
//!
//! - A login is found only through a challenge of the server, never by its URL alone, because its key has the issuer, and a server can have
//!   changed that since. So a refresh token never reaches another issuer, and not even another token endpoint of the same one.
//! - A refresh holds the lock of its key, reads the login again, and replaces it by its revision before the new token is used, because most
//!   authorization servers end a login whose refresh token is used twice. It runs in a task of the program, because a call that is dropped
//!   would lose the token that was already exchanged.
//! - A login that was started is in the same store as its result, under a digest of its `state`, and is removed before its code is sent,
//!   because the redirect can reach another process, and must be used once.
//! - The credentials of a program are exchanged in each process and not stored, because nothing rotates.
//! - Scopes are added to all that a login has requested, and never requested twice, because a server could otherwise ask its user for ever.
//!   What a call lacks is stored with the login, because another process can start the next one.
//! - A token is renewed when the server rejects it, and not by its age, because a request that is rejected has not been executed, and
//!   clocks differ.
//! - Only `connect` and a call that was refused show an authorization URL, because a reconnection has nobody in front of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use reqwest::Url;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tool_http::client::{Redactor, is_loopback, redact_url};

use super::challenge::Challenge;
use super::client::Client;
use super::config::{Grant, LoginKind, LoginPrompt, OAuth};
use super::error::OAuthError;
use super::loopback::Loopback;
use super::metadata::{Discovery, ServerMetadata};
use super::random::{digest, random_text};
use super::redirect::Redirect;
use super::request::encode_for_shells;
use super::store::{CredentialKey, CredentialLock, load, remove, swap};
use super::tokens::{LoginRecord, TokenSource, union};

/// The longest time from the start of a login to its redirect.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(300);

/// The longest wait for another process that renews the same login: longer than its request takes.
const LOCK_TIMEOUT: Duration = Duration::from_secs(45);

/// The largest number of scopes of a login, and of their bytes, to which those are added that a call needs.
const MAX_SCOPES: usize = 64;
const MAX_SCOPE_BYTES: usize = 4 << 10;

/// The number of attempts to renew a login that others change.
const MAX_RENEWALS: usize = 3;

/// The time after a failed login in which no call shows another one.
const COOL_DOWN: Duration = Duration::from_secs(60);

/// The time after a login for which a client that registered itself is used again.
const REGISTRATION_LIFETIME: Duration = Duration::from_secs(60 * 60);

/// The time for which the need of a login is known.
const CHALLENGE_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The time after which a store returns what another process has stored.
const STORE_LAG: Duration = Duration::from_millis(500);

/// Obtains the tokens of one server for one user.
pub(crate) struct Session {
    oauth: OAuth,
    server: Url,
    /// Gets each access token.
    redactor: Redactor,
    state: Mutex<State>,
    /// Held during a login, so that calls that fail together ask the user once.
    login: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    current: Option<LoginRecord>,
    /// The latest challenge of the server.
    challenge: Challenge,
    needs_login: bool,
    failed_login: Option<Instant>,
    /// The port of the last login on this machine.
    port: u16,
}

impl State {
    /// Returns the token in use, unless it is the one that was rejected.
    fn newer_token(&self, rejected: Option<&String>) -> Option<String> {
        let token = &self.current.as_ref()?.access_token;
        (Some(token) != rejected).then(|| token.clone())
    }
}

/// A login that was started, as it is stored until its redirect.
#[derive(Serialize, Deserialize)]
struct PendingLogin {
    key: CredentialKey,
    source: TokenSource,
    redirect_uri: String,
    verifier: String,
    requires_issuer: bool,
}

/// A client that registered itself. The authorization server can forget it, and mostly shows that on a page of its own: so it ends with a
/// login that does not succeed.
#[derive(Serialize, Deserialize)]
struct Registration {
    client: Client,
    /// All logins that were started with it have succeeded, or one since.
    is_proven: bool,
}

impl Session {
    /// # Errors
    ///
    /// Returns an error if tokens for the server would be sent without TLS to another machine, or if the page that starts logins is none.
    pub(crate) fn new(oauth: OAuth, server: Url, redactor: Redactor) -> Result<Self, &'static str> {
        if server.scheme() != "https" && !is_loopback(&server) {
            return Err("`oauth` requires an `https` URL, or a server on this machine");
        }
        if let Grant::AuthorizationCode(LoginKind::Route { page: Some(page), .. }) = &oauth.grant {
            let is_page = |url: &Url| url.scheme() == "https" || url.scheme() == "http" && is_loopback(url);
            let is_readable = page.bytes().all(|byte| byte.is_ascii_graphic());
            if !is_readable || !page.parse().is_ok_and(|url| is_page(&url)) {
                return Err(
                    "`Login::page` requires an absolute `https` URL, or an `http` one on this machine",
                );
            }
        }
        Ok(Self { oauth, server, redactor, state: Mutex::default(), login: tokio::sync::Mutex::default() })
    }

    /// Returns the user who logs in, or `None` if the program does.
    pub(crate) fn user(&self) -> Option<&str> {
        match self.oauth.grant {
            Grant::AuthorizationCode(_) => Some(&self.oauth.user),
            Grant::ClientCredentials => None,
        }
    }

    /// Returns a session of another user.
    pub(crate) fn for_user(&self, user: &str, redactor: Redactor) -> Self {
        let (oauth, server) = (self.oauth.clone().user(user), self.server.clone());
        Self { oauth, server, redactor, state: Mutex::default(), login: tokio::sync::Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the token in use. `None` if there is none yet: the challenge to a request without one leads to it.
    pub(crate) fn token(&self) -> Option<String> {
        Some(self.state().current.as_ref()?.access_token.clone())
    }

    /// Returns a token in place of the one that the server rejected with a challenge, or of none.
    ///
    /// # Errors
    ///
    /// Returns an error if a person has to log in, or if there can be no token.
    pub(crate) async fn replace_token(
        self: &Arc<Self>,
        challenge: Challenge,
        rejected: Option<String>,
        program: &Handle,
    ) -> Result<String, OAuthError> {
        if let Some(token) = self.state().newer_token(rejected.as_ref()) {
            return Ok(token);
        }
        let lacking = match challenge.is_insufficient_scope() {
            true => self.add_scopes(&challenge.scopes().unwrap_or_default())?,
            false => Vec::new(),
        };
        let discovery = self.discover(&challenge).await?;
        self.state().challenge = challenge;
        let key = self.login_key(&discovery);
        if let Grant::ClientCredentials = self.oauth.grant {
            return self.request_for_program(discovery, &lacking).await;
        }
        // In a task of the program: a request that is dropped must not lose the answer to a refresh token that can be used once.
        let session = Arc::clone(self);
        let task = program.spawn(async move {
            let renewed = session.renew(key, rejected, lacking).await;
            if let Err(OAuthError::LoginRequired(_)) = &renewed {
                session.store_challenge().await?;
            }
            renewed
        });
        task.await.map_err(|_| OAuthError::failed("the runtime of the program has ended"))?
    }

    /// Returns the scopes of the login and those that a request lacked.
    ///
    /// # Errors
    ///
    /// Returns an error if the author does not allow a scope, if all scopes were requested before, because requesting them again could loop,
    /// or if there are too many scopes, because a server could demand another one each time.
    fn add_scopes(&self, lacking: &[String]) -> Result<Vec<String>, OAuthError> {
        if let Some(scope) = lacking.iter().find(|scope| !self.oauth.allows_scope(scope)) {
            return Err(OAuthError::failed(format!(
                "the scope `{scope}` is needed, which `OAuth::scopes` does not allow"
            )));
        }
        let state = self.state();
        let known = state.current.as_ref().map(|login| &*login.source.scopes).unwrap_or_default();
        let scopes = union(known, lacking.iter().map(String::as_str));
        if scopes.len() == known.len() {
            return Err(OAuthError::failed(format!(
                "the scopes `{}` are needed, which were requested before; give the user the right to them",
                lacking.join(" ")
            )));
        }
        if scopes.len() > MAX_SCOPES || scopes.join(" ").len() > MAX_SCOPE_BYTES {
            return Err(OAuthError::failed("too many or too long scopes are needed"));
        }
        Ok(scopes)
    }

    async fn discover(&self, challenge: &Challenge) -> Result<Discovery, OAuthError> {
        let mut discovery = Discovery::request(&self.server, challenge, &self.oauth).await?;
        for scopes in [&mut discovery.scopes, &mut discovery.server.scopes_supported] {
            scopes.retain(|scope| self.oauth.allows_scope(scope));
        }
        Ok(discovery)
    }

    /// Returns the key of the login, which does not depend on the id of a client that registers itself.
    fn login_key(&self, discovery: &Discovery) -> CredentialKey {
        let configured = Client::configured(&self.oauth, &discovery.server);
        CredentialKey {
            issuer: discovery.server.issuer.clone(),
            client: configured.map(|client| client.id).unwrap_or_default(),
            resource: discovery.resource.clone(),
            server: digest(self.server.as_str()),
            user: self.oauth.user.clone(),
            pending: None,
        }
    }

    /// Records that a person has to log in, unless somebody has done so while the request for the rejected token was in flight.
    fn needs_login(&self, reason: &str, rejected: Option<&String>) -> Result<String, OAuthError> {
        let mut state = self.state();
        if let Some(token) = state.newer_token(rejected) {
            return Ok(token);
        }
        state.needs_login = true;
        let way = match self.oauth.grant {
            Grant::AuthorizationCode(LoginKind::Route { page: Some(_), .. }) => {
                "start one with `McpServer::start_login`"
            }
            Grant::AuthorizationCode(LoginKind::Route { .. }) => {
                "start one with `McpServer::start_login`, or set `Login::page`, so that runs wait for it"
            }
            _ => "connect again to log in",
        };
        Err(OAuthError::LoginRequired(format!("{reason}; {way}")))
    }

    /// Adopts the stored login, or renews it if no other process has done so. If it lacks scopes, they are recorded for its successor,
    /// which another process can start.
    async fn renew(
        &self,
        key: CredentialKey,
        rejected: Option<String>,
        lacking: Vec<String>,
    ) -> Result<String, OAuthError> {
        let store = &*self.oauth.store;
        let _lock = self.lock(&key).await?;
        let mut used = None;
        for _ in 0..MAX_RENEWALS {
            let stored = load::<LoginRecord>(store, &key).await?;
            let Some((mut login, revision)) = stored else {
                return self.needs_login("nobody has logged in", rejected.as_ref());
            };
            if Some(&login.access_token) != rejected.as_ref() && !login.is_expired() {
                return Ok(self.adopt(login));
            }
            if !lacking.is_empty() {
                login.lacking.clone_from(&lacking);
                if swap(store, &key, Some(&revision), Some(&login), None).await? {
                    return self.needs_login("further scopes are needed", rejected.as_ref());
                }
                continue;
            }
            let Some(refresh_token) = login.refresh_token else {
                return self.needs_login("the login has expired", rejected.as_ref());
            };
            // To use it twice would end the login. A store that lags behind returns the result soon.
            if used.as_ref() == Some(&refresh_token) {
                tokio::time::sleep(STORE_LAG).await;
                continue;
            }
            let source = self.with_secret(login.source, &key);
            let grant = [("grant_type", "refresh_token"), ("refresh_token", &refresh_token)];
            let mut renewed = match self.request(&source, &key.issuer, &grant).await {
                Err(error) if ends_login(&error, &key) => {
                    let reason = error.to_string();
                    if swap::<LoginRecord>(store, &key, Some(&revision), None, None).await? {
                        return self.needs_login(&reason, rejected.as_ref());
                    }
                    continue;
                }
                renewed => renewed?,
            };
            renewed.refresh_token.get_or_insert_with(|| refresh_token.clone());
            renewed.lacking = login.lacking;
            if swap(store, &key, Some(&revision), Some(&renewed), None).await? {
                return Ok(self.adopt(renewed));
            }
            // The user has logged in or out meanwhile, and all processes use the result of that.
            used = Some(refresh_token);
        }
        Err(OAuthError::store("it did not replace a login that was renewed"))
    }

    async fn lock(&self, key: &CredentialKey) -> Result<CredentialLock, OAuthError> {
        let lock = tokio::time::timeout(LOCK_TIMEOUT, self.oauth.store.lock(key)).await;
        lock.map_err(|_| OAuthError::store(format!("another process holds its lock for {LOCK_TIMEOUT:?}")))?
            .map_err(OAuthError::store)
    }

    /// Removes the login of the user, and revokes its tokens if the authorization server has told where. Neither server is asked before it is
    /// removed, because the user may leave one that no longer works.
    pub(crate) async fn log_out(&self) -> Result<(), OAuthError> {
        let store = &*self.oauth.store;
        let Some((key, _)) = load::<CredentialKey>(store, &self.last_login_key()).await? else {
            return Ok(());
        };
        // A process that renews the login would store it again.
        let lock = self.lock(&key).await?;
        let login = loop {
            let Some((login, revision)) = load::<LoginRecord>(store, &key).await? else { return Ok(()) };
            if swap::<LoginRecord>(store, &key, Some(&revision), None, None).await? {
                break login;
            }
        };
        drop(lock);
        self.forget_token();
        let source = self.with_secret(login.source, &key);
        let Some(endpoint) = &source.revocation_endpoint else { return Ok(()) };
        let endpoint = self.oauth.check_url(endpoint, &key.issuer, &self.server)?;
        let mut revoked = Ok(());
        for token in login.refresh_token.into_iter().chain([login.access_token]) {
            revoked = revoked.and(source.revoke(endpoint.clone(), &token).await);
        }
        revoked
    }

    /// Identifies the key of the last login, whose issuer the server need not name any more when the user logs out.
    fn last_login_key(&self) -> CredentialKey {
        CredentialKey { client: "last login".to_owned(), ..self.challenge_key() }
    }

    /// Stores the key of a login that follows. One at another authorization server ends.
    async fn store_last_login(&self, key: &CredentialKey) -> Result<(), OAuthError> {
        let (store, last) = (&*self.oauth.store, self.last_login_key());
        loop {
            let (earlier, revision) = load::<CredentialKey>(store, &last).await?.unzip();
            if earlier.as_ref() == Some(key) {
                return Ok(());
            }
            if swap(store, &last, revision.as_deref(), Some(key), None).await? {
                return match earlier {
                    Some(earlier) => remove(store, &earlier).await,
                    None => Ok(()),
                };
            }
        }
    }

    /// Adds the secret of a configured client, which is not stored.
    fn with_secret(&self, mut source: TokenSource, key: &CredentialKey) -> TokenSource {
        if let Some(registered) = self.oauth.registered_client(&key.issuer) {
            source.client.secret = registered.secret();
        }
        source
    }

    /// Obtains a token with the credentials of the program, which no other process needs.
    async fn request_for_program(
        &self,
        discovery: Discovery,
        lacking: &[String],
    ) -> Result<String, OAuthError> {
        let Discovery { resource, scopes, server } = discovery;
        let scopes = union(lacking, scopes.iter().map(String::as_str));
        let client = Client::configured(&self.oauth, &server).filter(|client| client.secret.is_some());
        let client = client
            .ok_or_else(|| OAuthError::failed(format!("the client of `{}` has no secret", server.issuer)))?;
        let scope = scopes.join(" ");
        let source = TokenSource::new(client, &server, resource, scopes);
        let mut grant = vec![("grant_type", "client_credentials")];
        if !scope.is_empty() {
            grant.push(("scope", &scope));
        }
        Ok(self.adopt(self.request(&source, &server.issuer, &grant).await?))
    }

    /// Requests tokens with the parameters of a grant.
    async fn request(
        &self,
        source: &TokenSource,
        issuer: &str,
        grant: &[(&str, &str)],
    ) -> Result<LoginRecord, OAuthError> {
        source.request(self.oauth.check_url(&source.token_endpoint, issuer, &self.server)?, grant).await
    }

    /// Uses a login from now on, and returns its token.
    fn adopt(&self, login: LoginRecord) -> String {
        let token = login.access_token.clone();
        self.redactor.add_shared(&token);
        let mut state = self.state();
        (state.current, state.needs_login) = (Some(login), false);
        token
    }

    /// Makes the next request find the login of the store, which may be a newer one.
    pub(crate) fn forget_token(&self) {
        self.state().current = None;
    }

    /// Identifies the challenge of a server that is in the store until the next login.
    fn challenge_key(&self) -> CredentialKey {
        let server = digest(self.server.as_str());
        CredentialKey { server, user: self.oauth.user.clone(), ..CredentialKey::default() }
    }

    /// Stores the latest challenge for a process that starts the login: a server can let everything pass but calls.
    async fn store_challenge(&self) -> Result<(), OAuthError> {
        if !self.has_route() {
            return Ok(());
        }
        let (store, key) = (&*self.oauth.store, self.challenge_key());
        let challenge = self.state().challenge.to_store(&self.server);
        let stored = load::<Challenge>(store, &key).await?.map(|(_, revision)| revision);
        let expires_at = Some(SystemTime::now() + CHALLENGE_LIFETIME);
        swap(store, &key, stored.as_deref(), Some(&challenge), expires_at).await.map(drop)
    }

    /// Uses the challenge of an earlier request that required a login. Returns `false` if there is none.
    pub(crate) async fn recall_challenge(&self) -> Result<bool, OAuthError> {
        let stored = load::<Challenge>(&*self.oauth.store, &self.challenge_key()).await?;
        let is_stored = stored.is_some();
        stored.into_iter().for_each(|(challenge, _)| self.state().challenge = challenge);
        Ok(is_stored)
    }

    /// Returns `true` if a request lacked a scope since the login.
    pub(crate) fn lacks_scope(&self) -> bool {
        self.state().current.as_ref().is_some_and(|login| !login.lacking.is_empty())
    }

    /// Returns `true` if the server rejected a request because a person has to log in.
    pub(crate) fn is_login_needed(&self) -> bool {
        self.state().needs_login
    }

    /// Lets the user log in, if the redirect comes to this function. Returns `false` if it comes to a route of the program. `is_call` states
    /// that a call needs the login, and not the program.
    pub(crate) async fn log_in(&self, is_call: bool) -> Result<bool, OAuthError> {
        let Grant::AuthorizationCode(kind) = &self.oauth.grant else { return Ok(false) };
        let failed_before = self.state().failed_login;
        let _login = self.login.lock().await;
        if !self.is_login_needed() {
            return Ok(true);
        }
        // The user has just refused, and is asked again neither for the calls that waited nor for each that follows.
        let failed = self.state().failed_login;
        if failed != failed_before || is_call && failed.is_some_and(|failed| failed.elapsed() < COOL_DOWN) {
            return Err(OAuthError::failed("a login has just failed; try again later, or connect again"));
        }
        // A call that is dropped meanwhile has not logged in.
        self.state().failed_login = Some(Instant::now());
        let ended = self.log_in_with(kind).await;
        self.state().failed_login = ended.is_err().then(Instant::now);
        ended
    }

    async fn log_in_with(&self, kind: &LoginKind) -> Result<bool, OAuthError> {
        let mut started = None;
        let limited = async {
            match kind {
                LoginKind::Route { .. } => Ok(None),
                LoginKind::Loopback { port, show } => {
                    // On the port of an earlier login, a client can be registered.
                    let earlier = self.state().port;
                    let loopback = match Loopback::bind(if *port == 0 { earlier } else { *port }).await {
                        Err(_) if *port == 0 => Loopback::bind(0).await?,
                        bound => bound?,
                    };
                    self.state().port = loopback.port();
                    let (prompt, state) = self.start(&loopback.redirect_uri()).await?;
                    show(&prompt);
                    Ok(Some(loopback.receive(started.insert(state)).await))
                }
                LoginKind::Paste { redirect_uri, ask } => {
                    let (prompt, state) = self.start(redirect_uri).await?;
                    started = Some(state);
                    let no_redirect = |error| OAuthError::failed(format!("no redirect was given: {error}"));
                    ask(prompt).await.map(Some).map_err(no_redirect)
                }
            }
        };
        let timed_out = |_| OAuthError::failed(format!("nobody logged in within {LOGIN_TIMEOUT:?}"));
        let redirect = tokio::time::timeout(LOGIN_TIMEOUT, limited).await;
        let redirect = redirect.map_err(timed_out).and_then(|received| received);
        if redirect.is_err()
            && let Some(state) = started
            && let Ok(pending) = self.take_pending(&state).await
        {
            self.forget_registration(&pending).await?;
        }
        match redirect? {
            Some(redirect) => self.finish(&redirect).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// # Errors
    ///
    /// Returns an error if the user of a route is not known: everybody could finish a login that another one started.
    fn check_user(&self) -> Result<(), OAuthError> {
        match self.has_route() && self.oauth.user.is_empty() {
            true => Err(OAuthError::failed(
                "`Login::route` needs the user of the browser's session; set `OAuth::user`",
            )),
            false => Ok(()),
        }
    }

    /// Returns `true` if the redirect comes to a route of the program.
    pub(crate) fn has_route(&self) -> bool {
        matches!(self.oauth.grant, Grant::AuthorizationCode(LoginKind::Route { .. }))
    }

    /// Returns the page of the program where its users start logins. `None` if there is none, or if the user is not known.
    pub(crate) fn page(&self) -> Option<&str> {
        match &self.oauth.grant {
            Grant::AuthorizationCode(LoginKind::Route { page, .. }) if !self.oauth.user.is_empty() => {
                page.as_deref()
            }
            _ => None,
        }
    }

    /// Starts a login whose redirect comes to a route of the program. Returns its authorization URL.
    pub(crate) async fn start_for_route(&self) -> Result<String, OAuthError> {
        self.check_user()?;
        match &self.oauth.grant {
            Grant::AuthorizationCode(LoginKind::Route { redirect_uri, .. }) => {
                Ok(self.start(redirect_uri).await?.0.url)
            }
            _ => Err(OAuthError::failed("there is no route for the redirect; set one with `Login::route`")),
        }
    }

    /// Starts a login. Returns what to show, and its `state`.
    async fn start(&self, redirect_uri: &str) -> Result<(LoginPrompt, String), OAuthError> {
        let is_open = |uri: &Url| uri.scheme() == "http" && !is_loopback(uri);
        if redirect_uri.parse().is_ok_and(|uri| is_open(&uri)) {
            return Err(OAuthError::failed(format!(
                "the redirect URI `{redirect_uri}` would send codes without TLS; use `https`"
            )));
        }
        let challenge = self.state().challenge.clone();
        let discovery = self.discover(&challenge).await?;
        let key = self.login_key(&discovery);
        let Discovery { resource, scopes, server } = discovery;
        server.require_pkce()?;
        let endpoint = server.authorization_endpoint.as_deref();
        let endpoint =
            endpoint.ok_or_else(|| OAuthError::failed("its authorization server has no login page"))?;
        let mut url = self.oauth.check_url(endpoint, &server.issuer, &self.server)?;
        let client = match Client::configured(&self.oauth, &server) {
            Some(client) => client,
            None => self.register(&server, redirect_uri).await?,
        };
        let is_offline = |scope: &&String| *scope == "offline_access";
        let stored = load::<LoginRecord>(&*self.oauth.store, &key).await?;
        let lacking = stored.map(|(login, _)| login.lacking).unwrap_or_default();
        let scopes = union(&lacking, scopes.iter().map(String::as_str));
        let scopes = union(&scopes, server.scopes_supported.iter().find(is_offline).map(String::as_str));
        let (state, verifier) = (random_text()?, random_text()?);
        url.query_pairs_mut().extend_pairs([
            ("response_type", "code"),
            ("client_id", &client.id),
            ("redirect_uri", redirect_uri),
            ("state", &state),
            ("code_challenge", &digest(&verifier)),
            ("code_challenge_method", "S256"),
            ("resource", &resource),
        ]);
        if !scopes.is_empty() {
            url.query_pairs_mut().append_pair("scope", &scopes.join(" "));
        }
        if scopes.iter().any(|scope| is_offline(&scope)) {
            // Otherwise the scope is ignored (OpenID Connect Core, section 11).
            url.query_pairs_mut().append_pair("prompt", "consent");
        }
        encode_for_shells(&mut url);
        let prompt = LoginPrompt {
            url: url.into(),
            server: redact_url(&self.server),
            issuer: server.issuer.clone(),
            scopes: scopes.clone(),
        };
        let pending = PendingLogin {
            key,
            source: TokenSource::new(client, &server, resource, scopes),
            redirect_uri: redirect_uri.to_owned(),
            verifier,
            requires_issuer: server.authorization_response_iss_parameter_supported,
        };
        let expires_at = Some(SystemTime::now() + LOGIN_TIMEOUT);
        swap(&*self.oauth.store, &pending_key(&state), None, Some(&pending), expires_at).await?;
        Ok((prompt, state))
    }

    fn registration_key(&self, issuer: &str, redirect_uri: &str) -> CredentialKey {
        let (issuer, client) = (issuer.to_owned(), redirect_uri.to_owned());
        CredentialKey { issuer, client, server: digest(self.server.as_str()), ..CredentialKey::default() }
    }

    /// Returns the client that was registered for this redirect URI before, or registers one.
    async fn register(&self, server: &ServerMetadata, redirect_uri: &str) -> Result<Client, OAuthError> {
        let key = self.registration_key(&server.issuer, redirect_uri);
        let (client, revision) = match load::<Registration>(&*self.oauth.store, &key).await? {
            // Not for longer: each attempt after one that failed could find it again.
            Some((Registration { client, is_proven: false }, _)) => return Ok(client),
            Some((Registration { client, .. }, revision)) => (client, Some(revision)),
            None => (Client::register(&self.oauth, server, redirect_uri, &self.server).await?, None),
        };
        self.store_registration(&key, revision, &client, false).await?;
        Ok(client)
    }

    /// Stores a client that registered itself until the end of a login, or for longer after one that succeeded. Another process can have been
    /// faster; both clients are valid.
    async fn store_registration(
        &self,
        key: &CredentialKey,
        expected: Option<String>,
        client: &Client,
        is_proven: bool,
    ) -> Result<(), OAuthError> {
        let lifetime = if is_proven { REGISTRATION_LIFETIME } else { LOGIN_TIMEOUT };
        let end = SystemTime::now() + lifetime;
        let end = client.expires_at().map_or(end, |secret| secret.min(end));
        let registration = Registration { client: client.clone(), is_proven };
        swap(&*self.oauth.store, key, expected.as_deref(), Some(&registration), Some(end)).await.map(drop)
    }

    /// Returns the key of the client of a login if it registered itself, and the revision of its registration, unless another client has
    /// registered itself since.
    async fn registration_of(
        &self,
        login: &PendingLogin,
    ) -> Result<Option<(CredentialKey, Option<String>)>, OAuthError> {
        let key = self.registration_key(&login.key.issuer, &login.redirect_uri);
        let stored = load::<Registration>(&*self.oauth.store, &key).await?;
        let is_newer = stored.as_ref().is_some_and(|(stored, _)| stored.client.id != login.source.client.id);
        let is_registered = login.key.client.is_empty();
        Ok((is_registered && !is_newer).then(|| (key, stored.map(|(_, revision)| revision))))
    }

    async fn forget_registration(&self, login: &PendingLogin) -> Result<(), OAuthError> {
        if let Some((key, Some(revision))) = self.registration_of(login).await? {
            swap::<Registration>(&*self.oauth.store, &key, Some(&revision), None, None).await?;
        }
        Ok(())
    }

    /// Removes a login that was started, and returns it.
    async fn take_pending(&self, state: &str) -> Result<PendingLogin, OAuthError> {
        let (store, key) = (&*self.oauth.store, pending_key(state));
        let unknown = || {
            OAuthError::failed(
                "the redirect is of no login that was started and is not finished; log in again",
            )
        };
        let (pending, revision) = load::<PendingLogin>(store, &key).await?.ok_or_else(unknown)?;
        if pending.key.user != self.oauth.user || pending.key.server != digest(self.server.as_str()) {
            return Err(OAuthError::failed("the redirect is of the login of another user or server"));
        }
        // Of two copies of a redirect, one goes on.
        match swap::<PendingLogin>(store, &key, Some(&revision), None, None).await? {
            true => Ok(pending),
            false => Err(unknown()),
        }
    }

    /// Requests the tokens of a login.
    async fn redeem(&self, redirect: &Redirect, pending: &PendingLogin) -> Result<LoginRecord, OAuthError> {
        redirect.check_issuer(&pending.key.issuer, pending.requires_issuer)?;
        redirect.check_target(&pending.redirect_uri)?;
        let grant = [
            ("grant_type", "authorization_code"),
            ("code", redirect.code()?),
            ("redirect_uri", &pending.redirect_uri),
            ("code_verifier", &pending.verifier),
        ];
        self.request(&pending.source, &pending.key.issuer, &grant).await
    }

    /// Finishes a login with the URL of its redirect, or its path and query.
    pub(crate) async fn finish(&self, redirect: &str) -> Result<(), OAuthError> {
        self.check_user()?;
        let redirect = Redirect::parse(redirect)?;
        let pending = self.take_pending(redirect.state()).await?;
        let redeemed = self.redeem(&redirect, &pending).await;
        if redeemed.is_err() {
            self.forget_registration(&pending).await?;
        }
        let (login, store, key) = (redeemed?, &*self.oauth.store, &pending.key);
        self.store_last_login(key).await?;
        // The newest login replaces any other.
        loop {
            let stored = load::<LoginRecord>(store, key).await?;
            let revision = stored.map(|(_, revision)| revision);
            if swap(store, key, revision.as_deref(), Some(&login), None).await? {
                self.adopt(login);
                break;
            }
        }
        // The user is logged in, whatever becomes of these.
        if let Ok(Some((key, revision))) = self.registration_of(&pending).await {
            let _ = self.store_registration(&key, revision, &pending.source.client, true).await;
        }
        let _ = remove(store, &self.challenge_key()).await;
        Ok(())
    }
}

/// Returns `true` if a login has ended that cannot be renewed. A client that registered itself may be unknown by now; a configured one has a
/// secret that is wrong, which says nothing about its logins.
fn ends_login(error: &OAuthError, key: &CredentialKey) -> bool {
    match error {
        OAuthError::InvalidGrant(_) => true,
        OAuthError::InvalidClient(_) => key.client.is_empty(),
        _ => false,
    }
}

/// Returns the key of a login that was started. Readers of keys do not learn its `state`.
fn pending_key(state: &str) -> CredentialKey {
    CredentialKey { pending: Some(digest(state)), ..CredentialKey::default() }
}
