//! The tokens of one server: finding, renewing, and asking for more scopes.
//!
//! - A login is found only through a challenge of the server, never by its URL alone, because its key has the issuer, and a server can have
//!   changed that since. So a refresh token never reaches another issuer, and not even another token endpoint of the same one.
//! - A refresh holds the lock of its key, reads the login again, and replaces it by its revision before the new token is used, because most
//!   authorization servers end a login whose refresh token is used twice. It runs in a task of the program, because a call that is dropped
//!   would lose the token that was already exchanged.
//! - The credentials of a program are exchanged in each process and not stored, because nothing rotates.
//! - Scopes are added to all that a login has requested, and never requested twice, because a server could otherwise ask its user for ever.
//!   What a call lacks is stored with the login, because another process can start the next one.
//! - A token is renewed when the server rejects it, because a request that is rejected has not been executed, and before a request if it is
//!   known to have expired, because some servers answer such a request without a challenge. If that fails, the server decides about the token.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use reqwest::Url;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tool_http::client::Redactor;

use super::challenge::Challenge;
use super::client::Client;
use super::config::{Grant, OAuth, Route};
use super::error::OAuthError;
use super::metadata::Discovery;
use super::random::digest;
use super::request::is_safe_for_secrets;
use super::store::{CredentialKey, CredentialLock, load, swap};
use super::tokens::{LoginRecord, TokenSource, union};

/// The longest wait for another process that renews the same login: longer than its request takes.
const LOCK_TIMEOUT: Duration = Duration::from_secs(45);

/// The largest number of scopes of a login, and of their bytes, to which those are added that a call needs.
const MAX_SCOPES: usize = 64;
const MAX_SCOPE_BYTES: usize = 4 << 10;

/// The number of attempts to renew a login that others change.
const MAX_RENEWALS: usize = 3;

/// The time for which the need of a login is known.
const CHALLENGE_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The time after which a store returns what another process has stored.
const STORE_LAG: Duration = Duration::from_millis(500);

/// Obtains the tokens of one server for one user.
pub(crate) struct Session {
    pub(super) oauth: OAuth,
    pub(super) server: Url,
    /// Gets each access token.
    redactor: Redactor,
    state: Mutex<State>,
    /// Held during a login, so that calls that fail together ask the user once.
    pub(super) login: tokio::sync::Mutex<()>,
}

/// How long an authorization server that has failed is not asked again before a request, which waits for it.
const RENEWAL_PAUSE: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct State {
    current: Option<LoginRecord>,
    /// The latest challenge of the server.
    pub(super) challenge: Challenge,
    needs_login: bool,
    /// When the last login failed, and whether it was refused.
    pub(super) failed_login: Option<(Instant, bool)>,
    /// When a token that had expired could not be renewed.
    failed_renewal: Option<Instant>,
    /// The port of the last login on this machine.
    pub(super) port: u16,
}

impl State {
    /// Returns the token in use, unless it is the one that was rejected.
    fn newer_token(&self, rejected: Option<&String>) -> Option<String> {
        let token = &self.current.as_ref()?.access_token;
        (Some(token) != rejected).then(|| token.clone())
    }
}

impl Session {
    /// # Errors
    ///
    /// Returns an error if tokens for the server would be sent without TLS to another machine, or if the page that starts logins is none.
    pub(crate) fn new(oauth: OAuth, server: Url, redactor: Redactor) -> Result<Self, &'static str> {
        if !is_safe_for_secrets(&server) {
            return Err("`oauth` requires an `https` URL, or a server on this machine");
        }
        if let Some(page) = oauth.route().and_then(|route| route.page.as_deref()) {
            let is_readable = page.bytes().all(|byte| byte.is_ascii_graphic());
            if !is_readable || !page.parse().is_ok_and(|url| is_safe_for_secrets(&url)) {
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

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the token in use, which is renewed if it is known to have expired, but not again soon after that has failed: the server decides
    /// about it then. `None` if there is none yet: the challenge to a request without one leads to it.
    pub(crate) async fn token(self: &Arc<Self>, program: &Handle) -> Option<String> {
        let (token, expired_after) = {
            let state = self.state();
            let login = state.current.as_ref()?;
            let is_renewable =
                login.refresh_token.is_some() || matches!(self.oauth.grant, Grant::ClientCredentials);
            let is_paused = state.failed_renewal.is_some_and(|at| at.elapsed() < RENEWAL_PAUSE);
            let is_replaced = login.is_expired() && is_renewable && !is_paused;
            (login.access_token.clone(), is_replaced.then(|| state.challenge.clone()))
        };
        let Some(challenge) = expired_after else { return Some(token) };
        let renewed = self.obtain_token(challenge, Vec::new(), Some(token.clone()), program).await;
        self.state().failed_renewal = renewed.is_err().then(Instant::now);
        Some(renewed.unwrap_or(token))
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
        self.obtain_token(challenge, lacking, rejected, program).await
    }

    /// Returns another token than the rejected one, from where the challenge leads. Its login has the `lacking` scopes.
    async fn obtain_token(
        self: &Arc<Self>,
        challenge: Challenge,
        lacking: Vec<String>,
        rejected: Option<String>,
        program: &Handle,
    ) -> Result<String, OAuthError> {
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
                "the scope `{scope}` is needed; allow it with `OAuth::scopes`"
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

    pub(super) async fn discover(&self, challenge: &Challenge) -> Result<Discovery, OAuthError> {
        let mut discovery = Discovery::request(&self.server, challenge, &self.oauth).await?;
        if let Some(scopes) = &self.oauth.scopes {
            discovery.scopes.clone_from(scopes);
        }
        for scopes in [&mut discovery.scopes, &mut discovery.server.scopes_supported] {
            scopes.retain(|scope| self.oauth.allows_scope(scope));
        }
        Ok(discovery)
    }

    /// Returns the key of the login, which does not depend on the id of a client that registers itself.
    pub(super) fn login_key(&self, discovery: &Discovery) -> CredentialKey {
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
        let way = match self.oauth.route() {
            Some(Route { page: Some(_), .. }) => "start one with `McpServer::start_login`",
            Some(_) => {
                "start one with `McpServer::start_login`, or set `Login::page`, so that runs wait for it"
            }
            None => "connect again to log in",
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

    pub(super) async fn lock(&self, key: &CredentialKey) -> Result<CredentialLock, OAuthError> {
        let lock = tokio::time::timeout(LOCK_TIMEOUT, self.oauth.store.lock(key)).await;
        lock.map_err(|_| OAuthError::store(format!("another process holds its lock for {LOCK_TIMEOUT:?}")))?
            .map_err(OAuthError::store)
    }

    /// Adds the secret of a configured client, which is not stored.
    pub(super) fn with_secret(&self, mut source: TokenSource, key: &CredentialKey) -> TokenSource {
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
    pub(super) async fn request(
        &self,
        source: &TokenSource,
        issuer: &str,
        grant: &[(&str, &str)],
    ) -> Result<LoginRecord, OAuthError> {
        source.request(self.oauth.check_url(&source.token_endpoint, issuer, &self.server)?, grant).await
    }

    /// Uses a login from now on, and returns its token.
    pub(super) fn adopt(&self, login: LoginRecord) -> String {
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
    pub(super) fn challenge_key(&self) -> CredentialKey {
        let server = digest(self.server.as_str());
        CredentialKey { server, user: self.oauth.user.clone(), ..CredentialKey::default() }
    }

    /// Stores the latest challenge for a process that starts the login: a server can let everything pass but calls.
    async fn store_challenge(&self) -> Result<(), OAuthError> {
        if self.oauth.route().is_none() {
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

    /// Returns the page of the program where its users start logins. `None` if there is none, or if the user is not known.
    pub(crate) fn page(&self) -> Option<&str> {
        self.oauth.route().filter(|_| !self.oauth.user.is_empty())?.page.as_deref()
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
