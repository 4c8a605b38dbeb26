//! The server as a protected resource of OAuth 2.0: what it publishes about itself ([RFC 9728](https://www.rfc-editor.org/rfc/rfc9728)),
//! and its challenges ([RFC 6750](https://www.rfc-editor.org/rfc/rfc6750)).

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tool_http::server::json_response;

use super::authorize::{Authorize, AuthorizeError, AuthorizeErrorKind, Credentials, Principal};

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
/// The longest time that is waited for an authorizer, because each request that waits takes the place of another.
const AUTHORIZE_TIMEOUT: Duration = Duration::from_secs(10);

/// What a server publishes about itself as a resource: its URL, and where clients get their tokens.
///
/// ```
/// use tool_mcp::server::ProtectedResource;
///
/// let resource = ProtectedResource::new("https://tools.example/mcp")
///     .authorization_server("https://login.example")
///     .scopes(["files:read"]);
/// # let _ = resource;
/// ```
#[derive(Clone, Debug)]
#[must_use = "pass it to `Server::protect`"]
pub struct ProtectedResource {
    url: String,
    authorization_servers: Vec<String>,
    scopes: Vec<String>,
}

impl ProtectedResource {
    /// Creates the resource with this URL, the one that clients use and that is the audience of their tokens.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), authorization_servers: Vec::new(), scopes: Vec::new() }
    }

    /// Adds an authorization server by its issuer URL. At least one is needed.
    pub fn authorization_server(mut self, issuer: impl Into<String>) -> Self {
        self.authorization_servers.push(issuer.into());
        self
    }

    /// Sets the scopes that clients request at first: the fewest that make the server useful. Scopes of
    /// [single tools](super::Server::scope) are requested when they are needed.
    pub fn scopes(mut self, scopes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.scopes = scopes.into_iter().map(Into::into).collect();
        self
    }
}

/// Authorizes the requests to a resource.
#[derive(Clone)]
pub(super) struct Protection {
    resource: ProtectedResource,
    authorize: Arc<dyn Authorize>,
}

impl Protection {
    pub(super) fn new(resource: ProtectedResource, authorize: impl Authorize + 'static) -> Self {
        Self { resource, authorize: Arc::new(authorize) }
    }

    /// Returns what is wrong with the resource, if anything.
    pub(super) fn problem(&self) -> Option<String> {
        let ProtectedResource { url, authorization_servers, scopes } = &self.resource;
        if authorization_servers.is_empty() {
            return Some("the resource names no authorization server; add one".to_owned());
        }
        if let Some(invalid) = [url].into_iter().chain(authorization_servers).find(|url| !is_url(url)) {
            return Some(format!(
                "`{}` is not an absolute URL without query and fragment",
                invalid.escape_debug()
            ));
        }
        let invalid = scopes.iter().find(|scope| !is_scope(scope))?;
        Some(format!("`{}` is not a scope", invalid.escape_debug()))
    }

    /// Returns the published document if the request is for it.
    pub(super) fn metadata(&self, method: &Method, uri: &Uri) -> Option<Response> {
        let suffix = uri.path().strip_prefix(WELL_KNOWN)?;
        let ProtectedResource { url, authorization_servers, scopes } = &self.resource;
        if !suffix.is_empty() && suffix != path(url) {
            return Some(StatusCode::NOT_FOUND.into_response());
        }
        if method != Method::GET && method != Method::HEAD {
            return Some(StatusCode::METHOD_NOT_ALLOWED.into_response());
        }
        let mut document = json!({
            "resource": url,
            "authorization_servers": authorization_servers,
            "bearer_methods_supported": ["header"],
        });
        if !scopes.is_empty() {
            document["scopes_supported"] = json!(scopes);
        }
        Some(json_response(StatusCode::OK, document))
    }

    /// Returns the sender of a request, or the response that refuses it.
    pub(super) async fn authorize(&self, headers: &HeaderMap) -> Result<Principal, Response> {
        let refuse = |error: AuthorizeError| self.refuse(&error, headers.contains_key(header::AUTHORIZATION));
        let authorized = self.authorize.authorize(Credentials::new(headers));
        match tokio::time::timeout(AUTHORIZE_TIMEOUT, authorized).await {
            Ok(authorized) => authorized.map_err(refuse),
            Err(_) => Err(refuse(AuthorizeError::unavailable())),
        }
    }

    /// Returns the response to a request that needs these scopes.
    pub(super) fn require_scopes(&self, scopes: &[String]) -> Response {
        self.refuse(&AuthorizeError::insufficient_scope(scopes.iter().map(String::as_str)), true)
    }

    fn refuse(&self, error: &AuthorizeError, has_credentials: bool) -> Response {
        let (status, code, scopes) = match error.kind() {
            AuthorizeErrorKind::Unauthenticated => {
                let code = has_credentials.then_some("invalid_token");
                (StatusCode::UNAUTHORIZED, code, &self.resource.scopes[..])
            }
            AuthorizeErrorKind::InsufficientScope => {
                (StatusCode::FORBIDDEN, Some("insufficient_scope"), error.scopes())
            }
            AuthorizeErrorKind::Unavailable => {
                let headers = [(header::RETRY_AFTER, "5")];
                return (StatusCode::SERVICE_UNAVAILABLE, headers, error.to_string()).into_response();
            }
        };
        let mut response = (status, error.to_string()).into_response();
        if let Ok(challenge) = HeaderValue::try_from(self.challenge(code, scopes)) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }

    fn challenge(&self, code: Option<&str>, scopes: &[String]) -> String {
        let url = &self.resource.url;
        let origin = url[..url.len() - path(url).len()].trim_end_matches('/');
        let metadata = format!("resource_metadata=\"{origin}{WELL_KNOWN}{}\"", path(url));
        let code = code.map(|code| format!("error=\"{code}\""));
        // Of the application's own scopes, only valid ones fit the header.
        let scopes: Vec<_> = scopes.iter().map(String::as_str).filter(|scope| is_scope(scope)).collect();
        let scope = (!scopes.is_empty()).then(|| format!("scope=\"{}\"", scopes.join(" ")));
        let parts: Vec<_> = code.into_iter().chain(scope).chain([metadata]).collect();
        format!("Bearer {}", parts.join(", "))
    }
}

/// Returns the path of a URL, or nothing if it is `/`.
fn path(url: &str) -> &str {
    let authority = url.find("://").map_or(0, |scheme| scheme + 3);
    let path = url[authority..].find('/').map_or("", |start| &url[authority + start..]);
    if path == "/" { "" } else { path }
}

fn is_url(url: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b'?' | b'#');
    let uri: Option<Uri> = url.parse().ok();
    let is_http =
        uri.is_some_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some());
    is_http && url.bytes().all(is_plain)
}

/// Returns `true` for a scope in the sense of RFC 6749, which needs no escapes in a header.
pub(super) fn is_scope(scope: &str) -> bool {
    !scope.is_empty() && scope.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protection(resource: ProtectedResource) -> Protection {
        Protection::new(resource, |_: &Credentials<'_>| Err(AuthorizeError::unauthenticated()))
    }

    #[test]
    fn the_metadata_is_between_origin_and_path() {
        for (url, expected) in [
            ("https://a.example", "https://a.example/.well-known/oauth-protected-resource"),
            ("https://a.example/", "https://a.example/.well-known/oauth-protected-resource"),
            (
                "https://a.example:8443/x/mcp",
                "https://a.example:8443/.well-known/oauth-protected-resource/x/mcp",
            ),
        ] {
            let challenge = protection(ProtectedResource::new(url)).challenge(None, &[]);
            assert_eq!(challenge, format!("Bearer resource_metadata=\"{expected}\""));
        }
        let challenge = protection(ProtectedResource::new("https://a.example/mcp"));
        let scopes = ["a:b", "c", "with space", "", "quo\"te"].map(str::to_owned);
        let expected = "Bearer error=\"insufficient_scope\", scope=\"a:b c\", \
                        resource_metadata=\"https://a.example/.well-known/oauth-protected-resource/mcp\"";
        assert_eq!(challenge.challenge(Some("insufficient_scope"), &scopes), expected);
    }

    #[test]
    fn resources_are_checked() {
        let valid =
            || ProtectedResource::new("https://a.example/mcp").authorization_server("http://127.0.0.1:1");
        assert_eq!(protection(valid().scopes(["a"])).problem(), None);
        let unnamed = protection(ProtectedResource::new("https://a.example/mcp")).problem();
        assert_eq!(unnamed.unwrap(), "the resource names no authorization server; add one");
        for url in [
            "",
            "/mcp",
            "ftp://a",
            "https://",
            "a.example",
            "https://a/#b",
            "https://a/?b",
            "https://a/\"",
            "https://a/\n",
        ] {
            let problem = protection(ProtectedResource::new(url).authorization_server("https://a")).problem();
            let expected =
                format!("`{}` is not an absolute URL without query and fragment", url.escape_debug());
            assert_eq!(problem, Some(expected));
        }
        let problem = protection(valid().scopes(["a", "b c"])).problem();
        assert_eq!(problem.unwrap(), "`b c` is not a scope");
    }
}
