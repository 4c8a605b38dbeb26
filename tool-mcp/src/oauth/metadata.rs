//! From a challenge to the metadata of the resource and of its authorization server (RFC 9728, RFC 8414, OpenID Connect Discovery).

use reqwest::Url;
use serde::Deserialize;

use super::challenge::Challenge;
use super::config::OAuth;
use super::error::OAuthError;
use super::request::{check_url, get_document};

const RESOURCE_METADATA: &str = "oauth-protected-resource";

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResourceMetadata {
    resource: String,
    authorization_servers: Vec<String>,
    scopes_supported: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ServerMetadata {
    pub(super) issuer: String,
    pub(super) authorization_endpoint: Option<String>,
    pub(super) token_endpoint: String,
    pub(super) registration_endpoint: Option<String>,
    pub(super) revocation_endpoint: Option<String>,
    code_challenge_methods_supported: Vec<String>,
    pub(super) token_endpoint_auth_methods_supported: Vec<String>,
    pub(super) scopes_supported: Vec<String>,
    pub(super) client_id_metadata_document_supported: bool,
    pub(super) authorization_response_iss_parameter_supported: bool,
}

/// What an MCP server and its authorization server state.
pub(super) struct Discovery {
    /// What tokens are requested for.
    pub(super) resource: String,
    /// The scopes to request, if any are stated.
    pub(super) scopes: Vec<String>,
    pub(super) server: ServerMetadata,
}

impl Discovery {
    /// Requests the metadata. Of several authorization servers, the first one is chosen with which a client is registered.
    pub(super) async fn request(
        server: &Url,
        challenge: &Challenge,
        oauth: &OAuth,
    ) -> Result<Self, OAuthError> {
        let metadata = match request_resource_metadata(server, challenge).await? {
            Some(metadata) => metadata,
            // As in the revision 2025-03-26 of the protocol, which has no metadata of resources.
            None => ResourceMetadata {
                resource: canonical_resource(server),
                authorization_servers: vec![server.origin().ascii_serialization()],
                ..ResourceMetadata::default()
            },
        };
        if !covers(&metadata.resource, server) {
            return Err(OAuthError::failed(format!(
                "its metadata is for another resource, `{}`",
                metadata.resource
            )));
        }
        let issuers = &metadata.authorization_servers;
        let issuer = issuers.iter().find(|issuer| oauth.registered_client(issuer).is_some());
        let issuer = issuer.or(issuers.first());
        let issuer =
            issuer.ok_or_else(|| OAuthError::failed("its metadata names no authorization server"))?;
        if oauth.registered_client(issuer).is_none() && oauth.is_bound() {
            let registered: Vec<_> =
                oauth.clients.iter().map(|client| format!("`{}`", client.issuer)).collect();
            return Err(OAuthError::failed(format!(
                "its authorization server is `{issuer}`, and the client is one of {}; issuers are compared exactly",
                registered.join(", ")
            )));
        }
        Ok(Self {
            resource: metadata.resource,
            // What the rejected request needs is more exact than all that there is.
            scopes: challenge.scopes().unwrap_or(metadata.scopes_supported),
            server: request_server_metadata(issuer, oauth.check_url(issuer, issuer, server)?).await?,
        })
    }
}

impl ServerMetadata {
    /// # Errors
    ///
    /// Returns an error if the server does not state that it supports PKCE: it would ignore the challenge, and an intercepted code could
    /// be used.
    pub(super) fn require_pkce(&self) -> Result<(), OAuthError> {
        if self.code_challenge_methods_supported.iter().any(|method| method == "S256") {
            return Ok(());
        }
        Err(OAuthError::failed(format!(
            "the authorization server `{}` does not state that it supports PKCE with `S256`; ask its operator to add \
             `code_challenge_methods_supported` to its metadata",
            self.issuer
        )))
    }
}

async fn request_resource_metadata(
    server: &Url,
    challenge: &Challenge,
) -> Result<Option<ResourceMetadata>, OAuthError> {
    if let Some(url) = &challenge.resource_metadata {
        return get_document(&check_url(url, server, false)?).await;
    }
    for path in [server.path().trim_end_matches('/'), ""] {
        let mut url = server.clone();
        url.set_path(&format!("/.well-known/{RESOURCE_METADATA}{path}"));
        url.set_query(None);
        if let Some(metadata) = get_document(&url).await? {
            return Ok(Some(metadata));
        }
    }
    Ok(None)
}

/// Requests the metadata of the authorization server `issuer` at its URL.
async fn request_server_metadata(issuer: &str, base: Url) -> Result<ServerMetadata, OAuthError> {
    let path = base.path().trim_end_matches('/').to_owned();
    let mut paths = vec![
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        paths.push(format!("{path}/.well-known/openid-configuration"));
    }
    for path in paths {
        let mut url = base.clone();
        url.set_path(&path);
        let Some(metadata) = get_document::<ServerMetadata>(&url).await? else { continue };
        // Otherwise a server could take the place of another one, and get its codes and secrets.
        return match metadata.issuer == issuer {
            true => Ok(metadata),
            false => Err(OAuthError::failed(format!(
                "the metadata of the authorization server `{}` is that of another one, `{}`",
                issuer, metadata.issuer
            ))),
        };
    }
    Err(OAuthError::failed(format!("the authorization server `{}` has no metadata", issuer)))
}

/// Returns the URL of a server as the identifier of a resource.
fn canonical_resource(server: &Url) -> String {
    let path = server.path().trim_end_matches('/');
    format!("{}{path}", server.origin().ascii_serialization())
}

/// Returns `true` if the resource is the server, or a part of its host that contains it. A query can tell servers apart.
fn covers(resource: &str, server: &Url) -> bool {
    let Ok(resource) = resource.parse::<Url>() else { return false };
    let rest = server.path().strip_prefix(resource.path().trim_end_matches('/'));
    resource.origin() == server.origin()
        && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        && (resource.query().is_none() || resource.query() == server.query())
        && (resource.fragment(), resource.username(), resource.password()) == (None, "", None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_contains_its_server() {
        let server = "https://mcp.example/a/mcp?key=x".parse().unwrap();
        for (resource, expected) in [
            ("https://mcp.example/a/mcp", true),
            ("https://mcp.example/a/mcp/", true),
            ("https://mcp.example/a", true),
            ("https://mcp.example", true),
            ("https://mcp.example/a/m", false),
            ("https://mcp.example/a/mcp/b", false),
            ("https://mcp.example:444/a/mcp", false),
            ("http://mcp.example/a/mcp", false),
            ("https://other.example/a/mcp", false),
            ("mcp", false),
            ("https://mcp.example/a/mcp?key=x", true),
            ("https://mcp.example/a/mcp?key=y", false),
            ("https://mcp.example/a/mcp#x", false),
            ("https://user@mcp.example/a/mcp", false),
        ] {
            assert_eq!(covers(resource, &server), expected, "{resource}");
        }
        assert_eq!(canonical_resource(&server), "https://mcp.example/a/mcp");
    }
}
