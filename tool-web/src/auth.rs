//! Who sends a request, and what they may do.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use http::HeaderMap;

/// What a [`Principal`] may do. Each right is separate: a principal that administers need not be allowed to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Right {
    /// See the runs on the page, with all texts and arguments.
    Read,
    /// Approve, change and deny calls and answer questions of all runs on the page, and with [`Chat`](Self::Chat), decide about each call in
    /// chats of one's own.
    Decide,
    /// Cancel, resume and end runs and send them messages on the page, and see their stored states and requests to the model.
    Administer,
    /// Talk to an agent through a [stream](crate::Frontend), in conversations of one's own; there, cancel runs, answer the questions of tools,
    /// and approve calls of [named tools](crate::Frontend::approvable_tools).
    Chat,
}

/// The sender of a request: a name, which decisions carry, and rights.
///
/// ```
/// use tool_web::{Principal, Right};
///
/// let anna = Principal::new("anna", [Right::Read, Right::Decide]);
/// assert!(anna.may(Right::Decide) && !anna.may(Right::Administer));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    name: Arc<str>,
    rights: Vec<Right>,
}

impl Principal {
    /// Creates a principal with these rights.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, rights: impl IntoIterator<Item = Right>) -> Self {
        Self { name: name.into(), rights: rights.into_iter().collect() }
    }

    /// Returns the principal of every request to a server without login.
    pub(crate) fn local() -> Self {
        Self::new("local user", [Right::Read, Right::Decide, Right::Administer, Right::Chat])
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// Returns `true` if the principal has this right.
    #[must_use]
    pub fn may(&self, right: Right) -> bool {
        self.rights.contains(&right)
    }
}

/// The future returned by [`Authenticate::authenticate`].
pub type AuthFuture<'a> = Pin<Box<dyn Future<Output = Option<Principal>> + Send + 'a>>;

/// Identifies the sender of a request, for example by the session of the program that the page is part of.
///
/// Implemented for functions from the headers to a principal. Requests of other web pages are refused before, so cookies are
/// safe to use.
///
/// ```
/// use http::HeaderMap;
/// use tool_web::{Principal, Right, Web};
///
/// // The proxy in front of the program authenticates, sets this header, and removes what browsers send.
/// let web = Web::new().authentication(|headers: &HeaderMap| {
///     let user = headers.get("x-user")?.to_str().ok()?;
///     Some(Principal::new(user, [Right::Read]))
/// });
/// ```
pub trait Authenticate: Send + Sync {
    /// Returns the sender of a request with these headers, or `None` if the request is to be refused.
    fn authenticate<'a>(&'a self, headers: &'a HeaderMap) -> AuthFuture<'a>;
}

impl<F: Fn(&HeaderMap) -> Option<Principal> + Send + Sync> Authenticate for F {
    fn authenticate<'a>(&'a self, headers: &'a HeaderMap) -> AuthFuture<'a> {
        Box::pin(ready(self(headers)))
    }
}
