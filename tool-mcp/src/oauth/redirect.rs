//! The redirect at the end of a login (RFC 6749, section 4.1.2; RFC 9207).
//!
//! A malicious authorization server can send the browser on to an honest one, whose code would then be sent to the malicious one. `iss`
//! prevents that where the honest one states it. Where it does not, the protocol accepts its redirects, and a redirect URI per issuer would
//! not change that: a client that is registered or has a document states its URIs before it knows the issuers, and a client that registered
//! itself has an id per server, which others do not know on loopback. Routes, whose users share such an id, are one per MCP server, and
//! `finish` refuses a login of another server.

use std::collections::HashMap;

use reqwest::Url;

use super::error::OAuthError;

/// The longest redirect, in bytes.
const MAX_BYTES: usize = 16 << 10;

/// The parameters of a redirect, and where it leads.
pub(super) struct Redirect {
    /// `None` for a path without a host.
    target: Option<Url>,
    parameters: HashMap<String, String>,
}

impl Redirect {
    /// Parses the URL of a redirect, or its path and query.
    pub(super) fn parse(text: &str) -> Result<Self, OAuthError> {
        let invalid = || {
            OAuthError::failed(
                "this is not the redirect of a login; paste the whole URL, with `state` and `code`",
            )
        };
        let text = Some(text.trim()).filter(|text| text.len() <= MAX_BYTES).ok_or_else(invalid)?;
        let (target, query) = text.split_once('?').ok_or_else(invalid)?;
        let target = match target.starts_with('/') {
            true => None,
            false => Some(target.parse::<Url>().map_err(|_| invalid())?),
        };
        let query = format!("form:?{}", query.split('#').next().unwrap_or_default());
        let query = query.parse::<Url>().map_err(|_| invalid())?;
        let mut parameters = HashMap::new();
        for (name, value) in query.query_pairs() {
            // Two readers of a repeated parameter could take different ones.
            if parameters.insert(name.into_owned(), value.into_owned()).is_some() {
                return Err(OAuthError::failed("the redirect repeats a parameter; log in again"));
            }
        }
        parameters.contains_key("state").then_some(Self { target, parameters }).ok_or_else(invalid)
    }

    pub(super) fn state(&self) -> &str {
        self.parameters.get("state").map(String::as_str).unwrap_or_default()
    }

    /// Checks that the redirect led to the URI that was requested.
    pub(super) fn check_target(&self, redirect_uri: &str) -> Result<(), OAuthError> {
        let expected = redirect_uri.parse::<Url>().ok();
        if self.target.is_some() && self.target != expected {
            return Err(OAuthError::failed(format!("the redirect does not lead to `{}`", redirect_uri)));
        }
        Ok(())
    }

    /// Checks that the redirect comes from the authorization server that was asked. This is the first thing to know about it: another one
    /// would otherwise get a code that is not its own, or report an error in its name.
    pub(super) fn check_issuer(&self, issuer: &str, is_required: bool) -> Result<(), OAuthError> {
        match self.parameters.get("iss") {
            Some(found) if found == issuer => Ok(()),
            None if !is_required => Ok(()),
            found => Err(OAuthError::failed(format!(
                "the redirect comes from `{}` and not from the authorization server `{}`, so it was ignored; log in again",
                found.map_or("an unnamed server", String::as_str),
                issuer
            ))),
        }
    }

    /// Returns the code.
    pub(super) fn code(&self) -> Result<&str, OAuthError> {
        if let Some(error) = self.parameters.get("error") {
            let description =
                self.parameters.get("error_description").map(String::as_str).unwrap_or_default();
            let text = format!("the login was refused: {error} {description}");
            let text = text.trim_end().to_owned();
            // Nobody has decided anything (RFC 6749, section 4.1.2.1).
            let is_temporary = ["server_error", "temporarily_unavailable"].contains(&&**error);
            return Err(if is_temporary { OAuthError::Failed(text) } else { OAuthError::LoginRefused(text) });
        }
        let code = self.parameters.get("code").map(String::as_str);
        code.ok_or_else(|| OAuthError::failed("the redirect has no `code`; log in again"))
    }
}
