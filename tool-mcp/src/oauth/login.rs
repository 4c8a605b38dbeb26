//! Starts and finishes the logins of persons, and ends them.
//!
//! - A login that was started is in the same store as its result, under a digest of its `state`, and is removed before its code is sent,
//!   because the redirect can reach another process, and must be used once.
//! - Only `connect` and a call that was refused show an authorization URL, because a reconnection has nobody in front of it.

use std::time::{Duration, SystemTime};

use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;
use tool_http::client::redact_url;

use super::client::Client;
use super::config::{Grant, LoginKind, LoginPrompt};
use super::error::OAuthError;
use super::loopback::Loopback;
use super::metadata::{Discovery, ServerMetadata};
use super::random::{digest, random_text};
use super::redirect::Redirect;
use super::request::{encode_for_shells, is_safe_for_secrets};
use super::session::Session;
use super::store::{CredentialKey, load, replace, swap};
use super::tokens::{LoginRecord, TokenSource, union};

/// The longest time from the start of a login to its redirect.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(300);

/// The time after a failed login in which no call shows another one.
const COOL_DOWN: Duration = Duration::from_secs(60);

/// The time after a login for which a client that registered itself is used again.
const REGISTRATION_LIFETIME: Duration = Duration::from_secs(60 * 60);

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
        if let Some((time, was_refused)) = failed
            && (failed != failed_before || is_call && time.elapsed() < COOL_DOWN)
        {
            let text = "a login has just failed; try again later, or connect again";
            let error = if was_refused { OAuthError::LoginRefused } else { OAuthError::Failed };
            return Err(error(text.to_owned()));
        }
        // A call that is dropped meanwhile has not logged in.
        self.state().failed_login = Some((Instant::now(), false));
        let ended = self.log_in_with(kind).await;
        let was_refused = |error: &OAuthError| matches!(error, OAuthError::LoginRefused(_));
        self.state().failed_login = ended.as_ref().err().map(|error| (Instant::now(), was_refused(error)));
        ended
    }

    async fn log_in_with(&self, kind: &LoginKind) -> Result<bool, OAuthError> {
        let mut started = None;
        let limited = async {
            match kind {
                LoginKind::Route(_) => Ok(None),
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
                    let no_redirect =
                        |error| OAuthError::LoginRefused(format!("no redirect was given: {error}"));
                    ask(prompt).await.map(Some).map_err(no_redirect)
                }
            }
        };
        let timed_out = |_| OAuthError::LoginRefused(format!("nobody logged in within {LOGIN_TIMEOUT:?}"));
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
        match self.oauth.route().is_some() && self.oauth.user.is_empty() {
            true => Err(OAuthError::failed(
                "`Login::route` needs the user of the browser's session; set `OAuth::user`",
            )),
            false => Ok(()),
        }
    }

    /// Starts a login whose redirect comes to a route of the program. Returns its authorization URL.
    pub(crate) async fn start_for_route(&self) -> Result<String, OAuthError> {
        self.check_user()?;
        let no_route =
            || OAuthError::failed("there is no route for the redirect; set one with `Login::route`");
        let route = self.oauth.route().ok_or_else(no_route)?;
        Ok(self.start(&route.redirect_uri).await?.0.url)
    }

    /// Starts a login. Returns what to show, and its `state`.
    async fn start(&self, redirect_uri: &str) -> Result<(LoginPrompt, String), OAuthError> {
        // A program can have a scheme of its own.
        let is_open = |uri: &Url| uri.scheme() == "http" && !is_safe_for_secrets(uri);
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
        replace(store, key, Some(&login)).await?;
        self.adopt(login);
        // The user is logged in, whatever becomes of these.
        if let Ok(Some((key, revision))) = self.registration_of(&pending).await {
            let _ = self.store_registration(&key, revision, &pending.source.client, true).await;
        }
        let _ = replace::<Value>(store, &self.challenge_key(), None).await;
        Ok(())
    }

    /// Removes the login of the user, and revokes its tokens if the authorization server has an endpoint for that. Neither server is asked before
    /// the login is removed, because the user may leave one that no longer works.
    pub(crate) async fn log_out(&self) -> Result<(), OAuthError> {
        let mut ended = Ok(());
        for client in self.oauth.clients_of_logins() {
            ended = ended.and(self.end_login_of(client).await);
        }
        ended
    }

    async fn end_login_of(&self, client: &str) -> Result<(), OAuthError> {
        let store = &*self.oauth.store;
        let Some((key, _)) = load::<CredentialKey>(store, &self.last_login_key(client)).await? else {
            return Ok(());
        };
        // A process that renews the login would store it again.
        let lock = self.lock(&key).await?;
        let Some(login) = replace::<LoginRecord>(store, &key, None).await? else { return Ok(()) };
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

    /// Identifies the key of the last login of a client, whose issuer the server need not name any more when the user logs out.
    fn last_login_key(&self, client: &str) -> CredentialKey {
        CredentialKey { client: format!("last login of {client}"), ..self.challenge_key() }
    }

    /// Stores the key of a login that follows. One of the same client at another authorization server ends.
    async fn store_last_login(&self, key: &CredentialKey) -> Result<(), OAuthError> {
        // The key has no id of a client that registers itself.
        let client = if key.client.is_empty() { self.oauth.unregistered_client() } else { &key.client };
        let (store, last) = (&*self.oauth.store, self.last_login_key(client));
        match replace(store, &last, Some(key)).await? {
            Some(earlier) if earlier != *key => replace::<Value>(store, &earlier, None).await.map(drop),
            _ => Ok(()),
        }
    }
}

/// Returns the key of a login that was started. Readers of keys do not learn its `state`.
fn pending_key(state: &str) -> CredentialKey {
    CredentialKey { pending: Some(digest(state)), ..CredentialKey::default() }
}
