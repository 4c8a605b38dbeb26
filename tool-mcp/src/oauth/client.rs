//! As which client the program appears: registered, described by a document, or registering itself (RFC 7591).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::Url;
use reqwest::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::config::OAuth;
use super::error::OAuthError;
use super::metadata::ServerMetadata;
use super::request::send;

/// A client of an authorization server.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Client {
    #[serde(rename = "client_id")]
    pub(super) id: String,
    #[serde(rename = "client_secret")]
    pub(super) secret: Option<String>,
    /// How the client authenticates. `None` leaves it to the server's metadata.
    #[serde(rename = "token_endpoint_auth_method")]
    pub(super) authentication: Option<String>,
    /// The Unix time in seconds at which the secret ends; 0 is never.
    #[serde(rename = "client_secret_expires_at")]
    secret_expires_at: Option<u64>,
}

impl Client {
    /// Returns the time at which the secret ends.
    pub(super) fn expires_at(&self) -> Option<SystemTime> {
        let seconds = self.secret_expires_at.filter(|seconds| self.secret.is_some() && *seconds > 0);
        UNIX_EPOCH.checked_add(Duration::from_secs(seconds?))
    }

    /// Returns the client that was configured for the authorization server.
    pub(super) fn configured(oauth: &OAuth, metadata: &ServerMetadata) -> Option<Self> {
        let (id, secret) = match (oauth.registered_client(&metadata.issuer), &oauth.client_metadata_url) {
            (Some(client), _) => (&client.id, client.secret()),
            (None, Some(url)) if metadata.client_id_metadata_document_supported => (url, None),
            _ => return None,
        };
        let client = Self { id: id.clone(), secret, authentication: None, secret_expires_at: None };
        Some(client.with_authentication(metadata))
    }

    /// Registers a client.
    pub(super) async fn register(
        oauth: &OAuth,
        metadata: &ServerMetadata,
        redirect_uri: &str,
        server: &Url,
    ) -> Result<Self, OAuthError> {
        let failed = |problem: &str| {
            OAuthError::failed(format!(
                "the authorization server `{}` {problem}; register one with its operator and set `OAuth::client`",
                metadata.issuer
            ))
        };
        let endpoint = metadata.registration_endpoint.as_deref();
        let endpoint = endpoint.ok_or_else(|| failed("registers no clients"))?;
        let endpoint = oauth.check_url(endpoint, &metadata.issuer, server)?;
        let body = json!({
            "client_name": oauth.client_name,
            "redirect_uris": [redirect_uri],
            "application_type": if redirect_uri.starts_with("https:") { "web" } else { "native" },
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        });
        let response = send(&endpoint, |client| {
            client.post(endpoint.clone()).header(CONTENT_TYPE, "application/json").body(body.to_string())
        });
        let (status, body) = response.await?;
        if !status.is_success() {
            return Err(failed(&format!("did not register a client (HTTP {status})")));
        }
        // The text of serde's error could contain a part of the secret.
        let client: Self = serde_json::from_slice(&body)
            .map_err(|_| failed("did not register a client, but sent an invalid response"))?;
        // Otherwise the login could be continued at the authorization server that knows the id.
        if oauth.is_client(&client.id) {
            return Err(failed("registered a client with the id of another one"));
        }
        Ok(client.with_authentication(metadata))
    }

    /// Chooses how the client authenticates, unless it is known (RFC 8414, section 2).
    fn with_authentication(mut self, metadata: &ServerMetadata) -> Self {
        let (basic, post) = ("client_secret_basic", "client_secret_post");
        let supported = &metadata.token_endpoint_auth_methods_supported;
        let supports = |method: &str| supported.iter().any(|supported| supported == method);
        let preferred = if supports(post) && !supports(basic) { post } else { basic };
        self.authentication = match &self.secret {
            None => Some("none".to_owned()),
            Some(_) => self.authentication.or_else(|| Some(preferred.to_owned())),
        };
        self
    }
}
