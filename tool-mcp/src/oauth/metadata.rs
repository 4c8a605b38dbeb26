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
        let resource = own_resource(&metadata.resource, server).ok_or_else(|| {
            OAuthError::failed(format!("its metadata is for another resource, `{}`", metadata.resource))
        })?;
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
            resource,
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

/// Returns what tokens are requested for, if the stated resource is the server, or a part of its host that contains it: then the URL of the
/// server, because its token would be valid for its neighbours otherwise. A query can tell servers apart.
fn own_resource(stated: &str, server: &Url) -> Option<String> {
    let resource = stated.parse::<Url>().ok()?;
    let rest = server.path().strip_prefix(resource.path().trim_end_matches('/'))?;
    let is_covering = resource.origin() == server.origin()
        && (rest.is_empty() || rest.starts_with('/'))
        && (resource.query().is_none() || resource.query() == server.query())
        && (resource.fragment(), resource.username(), resource.password()) == (None, "", None);
    let is_server = rest.trim_end_matches('/').is_empty();
    is_covering.then(|| if is_server { stated.to_owned() } else { canonical_resource(server) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_requested_for_the_server_alone() {
        let server = "https://mcp.example/a/mcp?key=x".parse().unwrap();
        let own = "https://mcp.example/a/mcp";
        for (stated, expected) in [
            (own, Some(own)),
            ("https://mcp.example/a/mcp/", Some("https://mcp.example/a/mcp/")),
            ("https://mcp.example/a/mcp?key=x", Some("https://mcp.example/a/mcp?key=x")),
            // These contain other servers.
            ("https://mcp.example/a", Some(own)),
            ("https://mcp.example", Some(own)),
            ("https://mcp.example/?key=x", Some(own)),
            ("https://mcp.example/a/m", None),
            ("https://mcp.example/a/mcp/b", None),
            ("https://mcp.example:444/a/mcp", None),
            ("http://mcp.example/a/mcp", None),
            ("https://other.example/a/mcp", None),
            ("mcp", None),
            ("https://mcp.example/a/mcp?key=y", None),
            ("https://mcp.example/a/mcp#x", None),
            ("https://user@mcp.example/a/mcp", None),
        ] {
            assert_eq!(own_resource(stated, &server).as_deref(), expected, "{stated}");
        }
        let root = "https://mcp.example/".parse().unwrap();
        assert_eq!(own_resource("https://mcp.example", &root).as_deref(), Some("https://mcp.example"));
    }
}
