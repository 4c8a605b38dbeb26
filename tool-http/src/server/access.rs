//! The hosts, origins and keys whose requests are admitted.
//!
//! A web page can make a browser send requests to a server on the user's machine or network. Browsers send the origin of the
//! page with them, which is checked. With DNS rebinding, the page has the same origin as the server, but under its own host
//! name, so the host is checked as well. A key does not replace these checks: a browser may store it for another page.
//!
//! All servers check every request, also with a key and in an embedded service, because web pages and DNS rebinding reach servers on a
//! user's machine, and a rule without exceptions is easier to enforce.

use std::fmt;

use axum::http::{HeaderMap, Method, Uri, header};
use secrecy::{ExposeSecret, SecretString};
use subtle::{Choice, ConstantTimeEq};

use super::authority::{HostPort, Origin};
use super::caller::Caller;
use super::rejection::Rejection;

/// Decides which requests are admitted. By default, these are requests for a loopback host, from programs other than browsers
/// or from web pages of a loopback origin.
#[derive(Clone, Default)]
pub struct Access {
    keys: Vec<SecretString>,
    hosts: Vec<HostPort>,
    origins: Vec<Origin>,
}

impl Access {
    /// Adds a key. Requests must then have one of the added keys as bearer token. An empty key admits no request.
    pub fn add_key(&mut self, key: SecretString) {
        self.keys.push(key);
    }

    /// Returns `true` if a key is required.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Allows a host such as `tools.example.org`, or only one of its ports, such as `tools.example.org:8080`.
    pub fn allow_host(&mut self, host: &str) {
        // IPv6 addresses are also accepted without brackets.
        self.hosts.extend(HostPort::parse(host).or_else(|| HostPort::parse(&format!("[{host}]"))));
    }

    /// Allows an origin such as `https://app.example.org`, or all of its ports with `https://app.example.org:*`.
    pub fn allow_origin(&mut self, origin: &str) {
        self.origins.extend(Origin::parse_allowed(origin));
    }

    /// Checks host, origin and key of a request, and returns its caller.
    ///
    /// # Errors
    ///
    /// Returns the reason if the request is not admitted.
    pub fn admit(&self, uri: &Uri, headers: &HeaderMap) -> Result<Caller, Rejection> {
        self.admit_without_key(uri, headers)?;
        self.check_key(headers)
    }

    /// Checks only host and origin of a request, for servers that know their callers in another way.
    ///
    /// # Errors
    ///
    /// Returns the reason if the request is not admitted.
    pub fn admit_without_key(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Rejection> {
        self.check_host(uri, headers)?;
        self.check_origin(headers)
    }

    /// Checks that a browser sends a request only for a page of this server: not for one of another origin, even of another port of
    /// the same host. A link of another page, or an address that the user enters, may lead to a `GET` with neither origin nor site.
    ///
    /// # Errors
    ///
    /// Returns the reason if a browser sends the request for another page.
    pub fn check_same_origin(method: &Method, headers: &HeaderMap) -> Result<(), Rejection> {
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let is_own_site = match text("sec-fetch-site") {
            None | Some("same-origin") => true,
            Some("none") => method == Method::GET,
            Some(_) => false,
        };
        let host = text("host").unwrap_or_default();
        let is_own_origin = text("origin").is_none_or(|origin| {
            origin.split_once("://").is_some_and(|(_, of)| of.eq_ignore_ascii_case(host))
        });
        if is_own_site && is_own_origin { Ok(()) } else { Err(Rejection::Origin) }
    }

    /// Checks every host that the request names: its header, and the one in its URL.
    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Rejection> {
        let mut hosts = Vec::new();
        for host in headers.get_all(header::HOST) {
            hosts.push(host.to_str().map_err(|_| Rejection::InvalidHost)?);
        }
        if hosts.len() > 1 {
            return Err(Rejection::InvalidHost);
        }
        // HTTP/2 requests have the host only in the URL.
        hosts.extend(uri.authority().map(|authority| authority.as_str()));
        if hosts.is_empty() {
            return Err(Rejection::InvalidHost);
        }
        for host in hosts {
            let parsed = HostPort::parse(host).ok_or(Rejection::InvalidHost)?;
            if !parsed.is_loopback() && !self.hosts.iter().any(|allowed| allowed.allows(&parsed)) {
                return Err(Rejection::Host(host.to_owned()));
            }
        }
        Ok(())
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Rejection> {
        for origin in headers.get_all(header::ORIGIN) {
            let origin = origin.to_str().ok().and_then(Origin::parse).ok_or(Rejection::Origin)?;
            if !origin.is_loopback() && !self.origins.iter().any(|allowed| allowed.allows(&origin)) {
                return Err(Rejection::Origin);
            }
        }
        Ok(())
    }

    /// Returns the bearer token of a request, if there is one.
    #[must_use]
    pub fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
        let sent = headers.get(header::AUTHORIZATION)?.as_bytes();
        let (scheme, token) = sent.split_at_checked("Bearer ".len())?;
        let token = token.trim_ascii();
        (scheme.eq_ignore_ascii_case(b"Bearer ") && !token.is_empty()).then_some(token)
    }

    /// Compares in constant time, so that the time does not leak parts of a key.
    fn check_key(&self, headers: &HeaderMap) -> Result<Caller, Rejection> {
        if self.keys.is_empty() {
            return Ok(Caller::ANYONE);
        }
        let key = Self::bearer_token(headers).unwrap_or_default();
        let is_known = self
            .keys
            .iter()
            .fold(Choice::from(0), |is_known, known| is_known | known.expose_secret().as_bytes().ct_eq(key));
        if !key.is_empty() && bool::from(is_known) {
            Ok(Caller::with_key(key))
        } else {
            Err(Rejection::Key { has_credentials: headers.contains_key(header::AUTHORIZATION) })
        }
    }
}

/// Shows no key.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("hosts", &self.hosts)
            .field("origins", &self.origins)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).fold(
            HeaderMap::new(),
            |mut headers, (name, value): (header::HeaderName, _)| {
                headers.append(name, value);
                headers
            },
        )
    }

    fn extended() -> Access {
        let mut access = Access::default();
        for host in ["tools.example", "Port.Example.:8080", "10.0.0.1", "fd00::1", "https://no.example"] {
            access.allow_host(host);
        }
        for origin in [
            "https://app.example:443",
            "HTTP://Any.Example:*",
            "http://[fd00::1]:*",
            "chrome-extension://abc",
            "null",
            "*",
            "http://two.example:1:*",
        ] {
            access.allow_origin(origin);
        }
        access
    }

    #[test]
    fn admits_only_allowed_hosts() {
        // With the default, and with more hosts.
        let table = [
            ("localhost", true, true),
            ("LocalHost:8080", true, true),
            ("localhost.", true, true),
            ("localhost.:80", true, true),
            ("localhost:", true, true),
            ("127.0.0.1:1", true, true),
            ("127.1.2.3", true, true),
            ("[::1]:8080", true, true),
            ("[0:0:0:0:0:0:0:1]", true, true),
            ("[::ffff:127.0.0.1]", true, true),
            ("tools.example:80", false, true),
            ("TOOLS.EXAMPLE.", false, true),
            ("port.example:8080", false, true),
            ("port.example:8081", false, false),
            ("port.example", false, false),
            ("10.0.0.1:1", false, true),
            ("[fd00::1]:1", false, true),
            ("10.0.0.2", false, false),
            ("no.example", false, false),
            ("evil.example", false, false),
            ("localhost.evil.example", false, false),
            ("127.0.0.1.evil.example", false, false),
            ("a.localhost", false, false),
            ("localhost..", false, false),
            ("0.0.0.0", false, false),
            ("[::]", false, false),
            ("2130706433", false, false),
        ];
        for (host, by_default, when_extended) in table {
            for (access, is_admitted) in [(Access::default(), by_default), (extended(), when_extended)] {
                let expected =
                    if is_admitted { Ok(Caller::ANYONE) } else { Err(Rejection::Host(host.into())) };
                let actual = access.admit(&Uri::from_static("/v1/models"), &headers(&[("host", host)]));
                assert_eq!(actual, expected, "{host}");
            }
        }
    }

    #[test]
    fn rejects_invalid_hosts() {
        let table: [&[(&str, &str)]; 11] = [
            &[],
            &[("host", "")],
            &[("host", ":80")],
            &[("host", "user@localhost")],
            &[("host", "localhost:x")],
            &[("host", "localhost:99999")],
            &[("host", "http://localhost")],
            &[("host", "localhost/")],
            &[("host", "localhost, evil.example")],
            &[("host", "localhost"), ("host", "localhost")],
            &[("host", "evil.example"), ("host", "localhost")],
        ];
        for sent in table {
            let actual = extended().admit(&Uri::from_static("/"), &headers(sent));
            assert_eq!(actual, Err(Rejection::InvalidHost), "{sent:?}");
        }
    }

    #[test]
    fn checks_the_host_of_the_url_as_well_as_the_header() {
        let table = [
            ("http://localhost/", Some("localhost"), true),
            ("http://localhost/", None, true),
            ("http://evil.example/", Some("localhost"), false),
            ("http://localhost/", Some("evil.example"), false),
            ("http://evil.example/", None, false),
        ];
        for (uri, host, is_admitted) in table {
            let headers = host.map(|host| headers(&[("host", host)])).unwrap_or_default();
            let expected =
                if is_admitted { Ok(Caller::ANYONE) } else { Err(Rejection::Host("evil.example".into())) };
            assert_eq!(Access::default().admit(&Uri::from_static(uri), &headers), expected, "{uri} {host:?}");
        }
    }

    #[test]
    fn admits_only_allowed_origins() {
        let table = [
            ("http://localhost:3000", true, true),
            ("https://LOCALHOST", true, true),
            ("http://127.0.0.1:1", true, true),
            ("http://[::1]:1", true, true),
            ("https://app.example", false, true),
            ("https://app.example:443", false, true),
            ("https://app.example:444", false, false),
            ("http://app.example", false, false),
            ("http://any.example", false, true),
            ("http://any.example:8080", false, true),
            ("https://any.example", false, false),
            ("http://[fd00::1]:5", false, true),
            ("chrome-extension://abc", false, true),
            ("chrome-extension://abd", false, false),
            ("http://two.example:1", false, false),
            ("ftp://localhost", false, false),
            ("http://evil.example", false, false),
            ("http://localhost.evil.example", false, false),
            ("http://localhost@evil.example", false, false),
            ("http://localhost:1 http://evil.example", false, false),
            ("null", false, false),
            ("NULL", false, false),
            ("*", false, false),
            ("localhost", false, false),
            ("", false, false),
        ];
        for (origin, by_default, when_extended) in table {
            for (access, is_admitted) in [(Access::default(), by_default), (extended(), when_extended)] {
                let sent = headers(&[("host", "localhost"), ("origin", origin)]);
                let expected = if is_admitted { Ok(Caller::ANYONE) } else { Err(Rejection::Origin) };
                assert_eq!(access.admit(&Uri::from_static("/"), &sent), expected, "{origin}");
            }
        }
        let two = headers(&[
            ("host", "localhost"),
            ("origin", "http://localhost"),
            ("origin", "http://evil.example"),
        ]);
        assert_eq!(Access::default().admit(&Uri::from_static("/"), &two), Err(Rejection::Origin));
    }

    #[test]
    fn distinguishes_pages_of_this_server_from_others() {
        let table = [
            ("POST", ("accept", "*/*"), true),
            ("POST", ("sec-fetch-site", "same-origin"), true),
            ("GET", ("sec-fetch-site", "none"), true),
            ("POST", ("sec-fetch-site", "none"), false),
            ("GET", ("sec-fetch-site", "same-site"), false),
            ("GET", ("sec-fetch-site", "cross-site"), false),
            ("GET", ("sec-fetch-site", ""), false),
            ("POST", ("origin", "http://localhost:80"), true),
            ("POST", ("origin", "HTTP://LOCALHOST:80"), true),
            ("GET", ("origin", "http://localhost:81"), false),
            ("GET", ("origin", "http://localhost"), false),
            ("GET", ("origin", "null"), false),
        ];
        for (method, sent, is_admitted) in table {
            let headers = headers(&[sent, ("host", "localhost:80")]);
            let expected = if is_admitted { Ok(()) } else { Err(Rejection::Origin) };
            assert_eq!(
                Access::check_same_origin(&method.parse().unwrap(), &headers),
                expected,
                "{method} {sent:?}"
            );
        }
    }

    #[test]
    fn admits_only_known_keys() {
        let mut access = Access::default();
        access.add_key("sk-1".into());
        access.add_key("sk-22".into());
        // From a variable without a value.
        access.add_key("".into());
        let table = [
            (Some("Bearer sk-1"), Some("sk-1")),
            (Some("Bearer sk-22"), Some("sk-22")),
            (Some("bearer  sk-1 "), Some("sk-1")),
            (Some("Bearer sk-2"), None),
            (Some("Bearer sk-1x"), None),
            (Some("Bearer "), None),
            (Some("Bearer"), None),
            (Some("sk-1"), None),
            (Some("Basic sk-1"), None),
            (Some(""), None),
            (None, None),
        ];
        for (sent, key) in table {
            let mut headers = headers(&[("host", "localhost")]);
            if let Some(sent) = sent {
                headers.insert(header::AUTHORIZATION, HeaderValue::from_static(sent));
            }
            let admitted = access.admit(&Uri::from_static("/"), &headers);
            let expected = key
                .map(|key| Caller::with_key(key.as_bytes()))
                .ok_or(Rejection::Key { has_credentials: sent.is_some() });
            assert_eq!(admitted, expected, "{sent:?}");
            let open = Access::default().admit(&Uri::from_static("/"), &headers);
            assert_eq!(open, Ok(Caller::ANYONE), "{sent:?}");
        }
        assert!(!format!("{access:?}").contains("sk-"));
    }
}
