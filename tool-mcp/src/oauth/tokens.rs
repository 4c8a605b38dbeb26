//! Requests to token endpoints, and the logins that result from them.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{StatusCode, Url};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tool_http::client::{Redactor, redact_url};

use super::client::Client;
use super::error::OAuthError;
use super::metadata::ServerMetadata;
use super::request::{encode_form, send};

/// From where the tokens of a login come.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct TokenSource {
    pub(super) client: Client,
    /// Recorded when the login was started: neither code nor refresh token is sent anywhere else, whatever the metadata states later.
    pub(super) token_endpoint: String,
    /// Where tokens are revoked, also recorded then.
    #[serde(default)]
    pub(super) revocation_endpoint: Option<String>,
    pub(super) resource: String,
    /// All that were requested or granted.
    pub(super) scopes: Vec<String>,
}

/// A login as it is stored.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct LoginRecord {
    pub(super) source: TokenSource,
    pub(super) access_token: String,
    pub(super) refresh_token: Option<String>,
    expires_at: Option<SystemTime>,
    /// The scopes to request in the next login, because a request lacked some of them.
    #[serde(default)]
    pub(super) lacking: Vec<String>,
}

impl LoginRecord {
    pub(super) fn is_expired(&self) -> bool {
        self.expires_at.is_some_and(|time| time <= SystemTime::now())
    }
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    token_type: String,
    expires_in: Option<u64>,
    refresh_token: Option<String>,
    #[serde(default)]
    scope: String,
}

impl TokenSource {
    pub(super) fn new(
        client: Client,
        server: &ServerMetadata,
        resource: String,
        scopes: Vec<String>,
    ) -> Self {
        let (token_endpoint, revocation_endpoint) =
            (server.token_endpoint.clone(), server.revocation_endpoint.clone());
        Self { client, token_endpoint, revocation_endpoint, resource, scopes }
    }

    /// Requests tokens at the token endpoint, whose URL was checked, with the parameters of a grant, which appear in no error.
    pub(super) async fn request(
        &self,
        endpoint: Url,
        grant: &[(&str, &str)],
    ) -> Result<LoginRecord, OAuthError> {
        let mut pairs = grant.to_vec();
        pairs.push(("resource", &self.resource));
        // Counted from before the request, so that the token is not used for longer than it is valid.
        let requested_at = SystemTime::now();
        let (status, body) = self.post(&endpoint, pairs).await?;
        if !status.is_success() {
            return Err(self.error(&endpoint, status, &body, grant));
        }
        // The text of serde's error could contain a part of a token.
        let tokens = serde_json::from_slice::<TokenResponse>(&body).ok();
        let is_usable = |tokens: &TokenResponse| {
            tokens.token_type.eq_ignore_ascii_case("bearer") && bearer(&tokens.access_token).is_some()
        };
        let tokens = tokens.filter(is_usable).ok_or_else(|| {
            OAuthError::failed(format!("the response of the token endpoint `{endpoint}` is invalid"))
        })?;
        let mut source = self.clone();
        source.scopes = union(&self.scopes, tokens.scope.split_whitespace());
        let lifetime = tokens.expires_in.map(Duration::from_secs);
        Ok(LoginRecord {
            source,
            access_token: tokens.access_token,
            refresh_token: tokens.refresh_token,
            expires_at: lifetime.and_then(|lifetime| requested_at.checked_add(lifetime)),
            lacking: Vec::new(),
        })
    }

    /// Revokes a token at an endpoint whose URL was checked, which ends its login (RFC 7009).
    pub(super) async fn revoke(&self, endpoint: Url, token: &str) -> Result<(), OAuthError> {
        let sent = [("token", token)];
        let mut pairs = sent.to_vec();
        if self.client.secret.is_none() {
            // Counts as omitted (RFC 6749, section 3.2), but servers of the Python SDK demand it.
            pairs.push(("client_secret", ""));
        }
        let (status, body) = self.post(&endpoint, pairs).await?;
        if status.is_success() { Ok(()) } else { Err(self.error(&endpoint, status, &body, &sent)) }
    }

    /// Sends parameters and the credentials of the client to an endpoint of the authorization server.
    async fn post<'a>(
        &'a self,
        endpoint: &Url,
        mut pairs: Vec<(&'a str, &'a str)>,
    ) -> Result<(StatusCode, Vec<u8>), OAuthError> {
        let Client { id, secret, authentication, .. } = &self.client;
        let secret = secret.as_deref().unwrap_or_default();
        let mut authorization = None;
        match authentication.as_deref() {
            Some("client_secret_basic") => {
                authorization = sensitive(&format!("Basic {}", self.client.basic()));
            }
            Some("client_secret_post") => pairs.extend([("client_id", &**id), ("client_secret", secret)]),
            _ => pairs.push(("client_id", id)),
        }
        let response = send(endpoint, |client| {
            let request = client.post(endpoint.clone()).body(encode_form(pairs));
            let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
            authorization.into_iter().fold(request, |request, value| request.header(AUTHORIZATION, value))
        });
        response.await
    }

    fn error(&self, endpoint: &Url, status: StatusCode, body: &[u8], sent: &[(&str, &str)]) -> OAuthError {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let get = |name: &str| body[name].as_str().unwrap_or_default();
        // Some servers repeat what was sent.
        let mut redactor = Redactor::new("[…]", 1);
        sent.iter().filter(|(name, _)| *name != "grant_type").for_each(|(_, value)| redactor.add(value));
        self.client.secret.iter().for_each(|secret| redactor.add(secret));
        redactor.add(&self.client.basic());
        let text = redactor.redact(format!("{} {}", get("error"), get("error_description")).trim());
        let problem = format!("the endpoint `{}` refused (HTTP {status}): {text}", redact_url(endpoint));
        match get("error") {
            "invalid_grant" => OAuthError::InvalidGrant(problem),
            "invalid_client" => OAuthError::InvalidClient(problem),
            _ => OAuthError::Failed(problem),
        }
    }
}

impl Client {
    /// Returns the credentials of a header. Both are encoded as in a form first (RFC 6749, section 2.3.1).
    fn basic(&self) -> String {
        let secret = self.secret.as_deref().unwrap_or_default();
        let pair = format!("{}:{}", encode_form([(&*self.id, "")]), encode_form([(secret, "")]));
        BASE64.encode(pair.replace('=', ""))
    }
}

/// Returns the value of a header with a token.
pub(crate) fn bearer(token: &str) -> Option<HeaderValue> {
    sensitive(&format!("Bearer {token}")).filter(|_| !token.is_empty())
}

fn sensitive(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Returns the scopes and those of the others that are not among them.
pub(super) fn union<'a>(scopes: &[String], others: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut all = scopes.to_vec();
    for other in others {
        if !all.iter().any(|scope| scope == other) {
            all.push(other.to_owned());
        }
    }
    all
}
