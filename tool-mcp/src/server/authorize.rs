//! Who sends an HTTP request, and what they may do.
//!
//! The server never verifies a token, the application does, because each authorization server has its own tokens. What the scope of a tool
//! demands is checked twice: before the SDK, because clients only learn from a status of HTTP, and where the call is executed, because
//! only that name counts.

use std::error::Error;
use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use axum::http::HeaderMap;
use tool_core::model::RunUser;
use tool_http::server::Access;

/// The sender of an HTTP request: a user, and the scopes that were granted. Tools can inject it.
///
/// ```
/// use tool_core::tool;
/// use tool_mcp::server::Principal;
///
/// #[tool("Lists the files")]
/// fn list(#[inject] principal: &Principal) -> &'static str {
///     if principal.has_scope("files:hidden") { "notes, .git" } else { "notes" }
/// }
/// # let _ = list;
/// let ada = Principal::new("ada", ["files:read"]);
/// assert!(ada.user().as_str() == "ada" && ada.has_scope("files:read") && !ada.has_scope("files:hidden"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    user: RunUser,
    scopes: Arc<[String]>,
}

impl Principal {
    /// Creates a principal with these scopes. The name of the user must be unique among all authorization servers.
    #[must_use]
    pub fn new(user: impl Into<RunUser>, scopes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { user: user.into(), scopes: scopes.into_iter().map(Into::into).collect() }
    }

    /// Returns the user.
    #[must_use]
    pub fn user(&self) -> &RunUser {
        &self.user
    }

    /// Returns `true` if this scope was granted.
    #[must_use]
    pub fn has_scope(&self, scope: &str) -> bool {
        self.scopes.iter().any(|granted| granted == scope)
    }
}

/// What an HTTP request contains about its sender. `Debug` shows none of it.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    headers: &'a HeaderMap,
}

impl<'a> Credentials<'a> {
    pub(super) fn new(headers: &'a HeaderMap) -> Self {
        Self { headers }
    }

    /// Returns the token of the header `Authorization: Bearer …`, if there is one of printable ASCII characters.
    #[must_use]
    pub fn bearer_token(&self) -> Option<&'a str> {
        let token = str::from_utf8(Access::bearer_token(self.headers)?).ok()?;
        token.bytes().all(|byte| byte.is_ascii_graphic()).then_some(token)
    }

    /// Returns all headers, such as one that a proxy sets.
    #[must_use]
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }
}

impl fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// The future returned by [`Authorize::authorize`].
pub type AuthorizeFuture<'a> = Pin<Box<dyn Future<Output = Result<Principal, AuthorizeError>> + Send + 'a>>;

/// Decides who sends an HTTP request, for [`Server::protect`](super::Server::protect).
///
/// An implementation verifies the token: its signature and issuer, or by asking the authorization server; that it has not expired; and that it was
/// issued **for this resource** (its audience), because another server could otherwise use the tokens that it receives. It limits its own
/// time, and is called for each request. Tokens must not be passed on to other services.
///
/// Implemented for functions from the credentials to a principal:
///
/// ```
/// use std::collections::HashMap;
/// use tool_mcp::server::{AuthorizeError, Credentials, Principal};
///
/// // In place of a real verification:
/// let tokens = HashMap::from([("token-of-ada", Principal::new("ada", ["files:read"]))]);
/// let authorize = move |credentials: &Credentials<'_>| {
///     let principal = credentials.bearer_token().and_then(|token| tokens.get(token));
///     principal.cloned().ok_or_else(AuthorizeError::unauthenticated)
/// };
/// # let _ = tool_mcp::server::Server::new(tool_core::tools![])
/// #     .protect(tool_mcp::server::ProtectedResource::new("https://tools.example/mcp"), authorize);
/// ```
pub trait Authorize: Send + Sync {
    /// Returns the sender of a request with these credentials.
    ///
    /// # Errors
    ///
    /// Fails if the request is to be refused. The sender reads only the kind of the error, and its scopes.
    fn authorize<'a>(&'a self, credentials: Credentials<'a>) -> AuthorizeFuture<'a>;
}

impl<F> Authorize for F
where
    F: Fn(&Credentials<'_>) -> Result<Principal, AuthorizeError> + Send + Sync,
{
    fn authorize<'a>(&'a self, credentials: Credentials<'a>) -> AuthorizeFuture<'a> {
        Box::pin(ready(self(&credentials)))
    }
}

/// The reason why a request is refused.
///
/// ```
/// use tool_mcp::server::{AuthorizeError, AuthorizeErrorKind};
///
/// let error = AuthorizeError::insufficient_scope(["files:read"]);
/// assert_eq!(error.kind(), AuthorizeErrorKind::InsufficientScope);
/// assert_eq!(error.to_string(), "the request needs further scopes");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizeError {
    kind: AuthorizeErrorKind,
    scopes: Vec<String>,
}

/// The kind of an [`AuthorizeError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AuthorizeErrorKind {
    /// There is no valid token: HTTP status 401.
    Unauthenticated,
    /// The token lacks scopes that every request needs: HTTP status 403. For single tools, use [`Server::scope`](super::Server::scope).
    InsufficientScope,
    /// The token cannot be verified at the moment: HTTP status 503.
    Unavailable,
}

impl AuthorizeError {
    /// There is no valid token.
    #[must_use]
    pub fn unauthenticated() -> Self {
        Self { kind: AuthorizeErrorKind::Unauthenticated, scopes: Vec::new() }
    }

    /// The token lacks some of these scopes. The challenge names all of them.
    #[must_use]
    pub fn insufficient_scope(scopes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let scopes = scopes.into_iter().map(Into::into).collect();
        Self { kind: AuthorizeErrorKind::InsufficientScope, scopes }
    }

    /// The token cannot be verified at the moment, for example because the authorization server does not respond.
    #[must_use]
    pub fn unavailable() -> Self {
        Self { kind: AuthorizeErrorKind::Unavailable, scopes: Vec::new() }
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> AuthorizeErrorKind {
        self.kind
    }

    /// Returns the scopes that the sender has to request.
    #[must_use]
    pub fn scopes(&self) -> &[String] {
        &self.scopes
    }
}

impl fmt::Display for AuthorizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            AuthorizeErrorKind::Unauthenticated => "missing or invalid bearer token",
            AuthorizeErrorKind::InsufficientScope => "the request needs further scopes",
            AuthorizeErrorKind::Unavailable => "the token cannot be verified now; try again later",
        })
    }
}

impl Error for AuthorizeError {}
