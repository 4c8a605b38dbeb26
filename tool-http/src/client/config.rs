//! How to connect to an API, as users configure it.

use std::env::VarError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Proxy, Url, redirect};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Semaphore;

use super::connect::{is_loopback, new_client};
use super::connection::{Connection, KEYS, ResponseHook};
use super::error::Error;
use super::error_kind::ErrorKinds;
use super::redact::Redactor;
use super::token_source::{TokenSource, Tokens};
use crate::backoff::LONGEST_TIMEOUT;

// The defaults of the official SDKs: five seconds to connect, ten minutes between two reads.
// <https://github.com/openai/openai-python/blob/main/src/openai/_constants.py>
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_READ_TIMEOUT: Duration = Duration::from_secs(600);

/// The shortest key or value of a header or query that is redacted, in bytes. Shorter ones are no secrets and may be common
/// words: local servers accept keys such as `x` or `none`.
const MIN_SECRET_BYTES: usize = 16;

/// The header that a key is sent in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthScheme {
    /// `Authorization: Bearer …`.
    Bearer,
    /// The header of this name, such as `x-api-key`.
    Header(&'static str),
}

/// How to connect to an API, as users configure it.
#[derive(Clone, Default)]
pub struct ConnectionConfig {
    /// The base URL, in place of the endpoint's own.
    pub base_url: Option<String>,
    /// The key. It is redacted from everything that the server sends.
    pub api_key: Option<SecretString>,
    /// The key is read from the endpoint's environment variable.
    pub has_key_from_env: bool,
    /// The source of the tokens to send in place of a key, as `Authorization: Bearer …`.
    pub token_source: Option<Arc<dyn TokenSource>>,
    /// Headers without secrets, which errors can contain.
    pub plain_headers: Vec<(String, String)>,
    /// Further headers, which replace others of the same name. Long values are redacted.
    pub headers: Vec<(String, SecretString)>,
    /// The client to use in place of one with the settings below.
    pub http: Option<Client>,
    /// The proxy, in place of the system's.
    pub proxy: Option<SecretString>,
    /// The time to connect.
    pub connect_timeout: Option<Duration>,
    /// The time between two reads.
    pub read_timeout: Option<Duration>,
    /// The number of requests in flight.
    pub max_concurrent_requests: Option<usize>,
    /// The base URL that errors suggest if the server does not know the path of a request.
    pub suggested_base_url: Option<String>,
    /// What the API calls its errors.
    pub known_errors: ErrorKinds,
    /// A function that is called with the headers of each response, also of one that reports an error.
    pub on_response: Option<ResponseHook>,
}

impl ConnectionConfig {
    /// Reads the key and the base URL from these environment variables. The key is optional if there is a base URL, because many local
    /// servers need none.
    ///
    /// # Errors
    ///
    /// Fails if neither variable is set or if one of them has an invalid value.
    pub fn from_env(key: &str, base_url: &str) -> Result<Self, Error> {
        let (api_key, url) = (read_variable(key)?.map(SecretString::from), read_variable(base_url)?);
        if api_key.is_none() && url.is_none() {
            return Err(Error::config(format!(
                "the environment variable {key} is not set; set it, or set {base_url} to a server that needs no key"
            )));
        }
        Ok(Self { api_key, base_url: url, ..Self::default() })
    }

    /// Returns the base URL: the one that is set, or the known one of the endpoint. `example` is shown in errors; `path` belongs to the
    /// API, which is appended and must not be part of the base URL.
    ///
    /// # Errors
    ///
    /// Fails if there is none, or if it is not the URL of a server or contains a password.
    pub fn base_url(&self, known: Option<&str>, example: &str, path: &str) -> Result<Url, Error> {
        let Some(text) = self.base_url.as_deref().or(known) else {
            return Err(Error::config("the endpoint has no base URL; set one with `base_url`"));
        };
        let url = parse_base_url(text, example)?;
        if url.path().trim_end_matches('/').ends_with(path) {
            return Err(Error::config(format!("the base URL must not contain `{path}`; it is appended")));
        }
        Ok(url)
    }

    /// Returns the key, if there is one. An endpoint with an environment variable for its key needs one, unless the base URL, the
    /// client or the headers are the caller's: another server may need none, and the others may contain it.
    fn key(&self, variable: Option<&str>) -> Result<Option<SecretString>, Error> {
        if let Some(key) = &self.api_key {
            return Ok(Some(key.clone()));
        }
        if self.has_key_from_env {
            return key_from_env(variable).map(Some);
        }
        let is_optional = self.base_url.is_some()
            || self.http.is_some()
            || self.token_source.is_some()
            || !self.headers.is_empty();
        match variable.filter(|_| !is_optional) {
            Some(variable) => Err(Error::config(format!(
                "no API key; set one with `api_key`, or read it from {variable} with `api_key_from_env`"
            ))),
            None => Ok(None),
        }
    }

    /// Refuses what could send a token to another server, or beside a key.
    fn check_token_source(&self, base_url: &Url) -> Result<(), Error> {
        if self.token_source.is_none() {
            return Ok(());
        }
        let is_key =
            |(name, _): &(String, SecretString)| KEYS.iter().any(|key| key.eq_ignore_ascii_case(name));
        let message = if self.api_key.is_some() || self.has_key_from_env || self.headers.iter().any(is_key) {
            "a key and `token_source` cannot be combined; leave out one of them"
        } else if self.http.is_some() {
            "`http_client` and `token_source` cannot be combined, because the client may follow redirects; leave out one of them"
        } else if base_url.scheme() != "https" && (!is_loopback(base_url) || self.proxy.is_some()) {
            "a token is only sent over `https`, or to this machine without a proxy; change the base URL"
        } else {
            return Ok(());
        };
        Err(Error::config(message))
    }

    /// Connects to the API at this URL. The key is sent in this header, and its environment variable is `variable`.
    ///
    /// # Errors
    ///
    /// Fails if there is no key although there should be, the key or a header cannot be sent, a setting is invalid, or the system
    /// has no certificates.
    pub fn connect(
        self,
        base_url: Url,
        scheme: AuthScheme,
        variable: Option<&str>,
    ) -> Result<Connection, Error> {
        self.check_token_source(&base_url)?;
        let mut redactor = Redactor::new("[key]", MIN_SECRET_BYTES);
        let mut headers = HeaderMap::new();
        if let Some(key) = self.key(variable)? {
            let key = key.expose_secret();
            redactor.add(key);
            if key.trim().is_empty() {
                let message = "the API key is empty; set one, or none if the server needs none";
                return Err(Error::config(message));
            }
            if HeaderValue::from_str(key).is_err() {
                let message = "the API key contains a character that is not allowed in headers, such as a line break; trim it";
                return Err(Error::config(message));
            }
            match scheme {
                AuthScheme::Bearer => insert(&mut headers, "authorization", &format!("Bearer {key}"))?,
                AuthScheme::Header(name) => insert(&mut headers, name, key)?,
            }
        }
        for (name, value) in &self.plain_headers {
            insert(&mut headers, name, value)?;
        }
        for (name, value) in &self.headers {
            redactor.add_header(value.expose_secret());
            insert(&mut headers, name, value.expose_secret())?;
        }
        redactor.add_url(&base_url);
        if self.max_concurrent_requests == Some(0) {
            return Err(Error::config("`max_concurrent_requests` must be at least 1"));
        }
        let permits =
            self.max_concurrent_requests.map(|max| Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS))));
        let http = match &self.http {
            Some(http) => http.clone(),
            None => self.new_http_client(&base_url)?,
        };
        let Self { token_source, suggested_base_url, known_errors, on_response, .. } = self;
        Ok(Connection {
            http,
            base_url,
            tokens: token_source.map(|source| Tokens::new(source, redactor.clone())),
            redactor,
            headers,
            permits,
            suggested_base_url,
            known_errors,
            on_response,
        })
    }

    /// Builds the client that is used if the user supplies none.
    fn new_http_client(&self, base_url: &Url) -> Result<Client, Error> {
        let mut builder = new_client(base_url).map_err(|error| Error::config(error.to_string()))?;
        if let Some(proxy) = &self.proxy {
            // The cause is not part of the message: the URL may contain a password.
            let proxy = Proxy::all(proxy.expose_secret())
                .map_err(|_| Error::config("invalid proxy URL; write it like `http://proxy.example:3128`"))?;
            builder = builder.proxy(proxy);
        }
        let timeout = |set: Option<Duration>, default| set.unwrap_or(default).min(LONGEST_TIMEOUT);
        builder
            .connect_timeout(timeout(self.connect_timeout, DEFAULT_CONNECT_TIMEOUT))
            .read_timeout(timeout(self.read_timeout, DEFAULT_READ_TIMEOUT))
            // A redirect may change the method or send the key to another host.
            .redirect(redirect::Policy::none())
            .build()
            .map_err(|error| Error::config(format!("could not build the HTTP client: {error}")))
    }
}

fn insert(headers: &mut HeaderMap, name: &str, text: &str) -> Result<(), Error> {
    let parsed = HeaderName::from_bytes(name.as_bytes());
    let parsed = parsed.map_err(|_| Error::config(format!("invalid header name `{name}`")))?;
    // The value is not part of the message: it may be the key.
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        Error::config(format!(
            "the value of the header `{name}` contains a character that is not allowed in headers"
        ))
    })?;
    value.set_sensitive(true);
    headers.insert(parsed, value);
    Ok(())
}

/// Parses the base URL of an API, and ensures that a path is appended to it instead of replacing its last segment. `example` is
/// shown in errors.
///
/// # Errors
///
/// Fails if the text is not the URL of a server, or contains a password.
fn parse_base_url(text: &str, example: &str) -> Result<Url, Error> {
    let invalid = |reason: &str| {
        // The query, and a password before an `@`, may be secret.
        let shown = text.split(['?', '#']).next().filter(|_| !text.contains('@'));
        let shown = shown.map(|text| format!(" `{text}`")).unwrap_or_default();
        Error::config(format!("invalid base URL{shown}: {reason}; write it like `{example}`"))
    };
    let mut url = Url::parse(text).map_err(|error| invalid(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid("it must start with `https` or `http`"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Error::config(
            "the base URL contains a user name or password; set the key with `api_key`",
        ));
    }
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    Ok(url)
}

/// Reads an environment variable. Returns `None` if it is not set or blank, and the trimmed value otherwise.
///
/// # Errors
///
/// Fails if the value is not Unicode.
pub fn read_variable(name: &str) -> Result<Option<String>, Error> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value.trim().to_owned()).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => {
            Err(Error::config(format!("the environment variable {name} is not valid Unicode")))
        }
    }
}

/// Reads the key of an endpoint from its environment variable.
///
/// # Errors
///
/// Fails if there is no variable, or it is not set.
fn key_from_env(name: Option<&str>) -> Result<SecretString, Error> {
    let Some(name) = name else {
        return Err(Error::config(
            "this endpoint has no environment variable for its key; set the key with `api_key`, if it needs one",
        ));
    };
    read_variable(name)?.map(SecretString::from).ok_or_else(|| {
        Error::config(format!(
            "the environment variable {name} is not set; set it, or set the key with `api_key`"
        ))
    })
}

/// Shows no secret.
impl fmt::Debug for ConnectionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionConfig").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "https://api.example.org";

    fn connect(config: ConnectionConfig, url: &str) -> Result<Connection, String> {
        let config = ConnectionConfig { base_url: Some(url.to_owned()), ..config };
        let base_url = config.base_url(None, EXAMPLE, "/messages").map_err(|error| error.to_string())?;
        config.connect(base_url, AuthScheme::Bearer, None).map_err(|error| error.to_string())
    }

    #[test]
    fn a_base_url_keeps_its_path_and_query() {
        for (base_url, expected) in [
            ("http://localhost:1/v1", "http://localhost:1/v1/messages"),
            ("http://localhost:1/v1/", "http://localhost:1/v1/messages"),
            ("http://localhost:1?key=secret", "http://localhost:1/messages?key=secret"),
        ] {
            let connection = connect(ConnectionConfig::default(), base_url).unwrap();
            assert_eq!(connection.url("messages").as_str(), expected);
            assert!(!format!("{connection:?}").contains("secret"));
        }
    }

    #[test]
    fn errors_contain_no_secrets() {
        for text in ["", "localhost:80", "file:///etc", "http://user:secret@host", "ftp://u:secret@host"] {
            let error = connect(ConnectionConfig::default(), text).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
        let api_key = Some(SecretString::from("sk-\nsecret"));
        let error = connect(ConnectionConfig { api_key, ..Default::default() }, EXAMPLE).unwrap_err();
        assert_eq!(
            error,
            "the API key contains a character that is not allowed in headers, such as a line break; trim it"
        );
    }
}
