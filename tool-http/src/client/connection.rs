//! A connection to one HTTP API: its address, key, timeouts and limits.

use std::env::VarError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt};
use reqwest::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Proxy, Response, StatusCode, Url, redirect};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::body::read_body;
use super::connect::new_client;
use super::redact::{Redactor, redact_url};
use super::request_body::RequestBody;
use crate::backoff::LONGEST_TIMEOUT;

// The defaults of the official SDKs: five seconds to connect, ten minutes between two reads.
// <https://github.com/openai/openai-python/blob/main/src/openai/_constants.py>
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_READ_TIMEOUT: Duration = Duration::from_secs(600);

/// The shortest key or value of a header or query that is redacted, in bytes. Shorter ones are no secrets and may be common
/// words: local servers accept keys such as `x` or `none`.
const MIN_SECRET_BYTES: usize = 16;

/// The number of bytes of an error response that are read.
const MAX_ERROR_BODY_BYTES: usize = 64 << 10;

/// Why a connection cannot be configured; `Display` is a message for users, without secrets.
#[derive(Debug)]
pub struct ConfigError(pub String);

/// The connections to one API. Nothing is sent before the first request.
pub struct Connection {
    http: Client,
    base_url: Url,
    redactor: Redactor,
    headers: HeaderMap,
    /// Limits the number of requests in flight.
    permits: Option<Arc<Semaphore>>,
}

/// The header that a key is sent in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyHeader {
    /// `Authorization: Bearer …`.
    Bearer,
    /// The header of this name.
    Named(&'static str),
}

/// How to connect to an API, as users configure it.
#[derive(Clone, Default)]
pub struct ConnectionConfig {
    /// The key and its header. It is redacted from everything that the server sends.
    pub key: Option<(KeyHeader, SecretString)>,
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
}

impl ConnectionConfig {
    /// Sets the key, if there is one: this one, or that of the endpoint's environment variable if `is_from_env`. The endpoint needs a
    /// key if it has such a variable, unless it `is_optional`, or the caller's client or headers may contain it.
    ///
    /// # Errors
    ///
    /// Fails if there is no key although there should be.
    pub fn set_key(
        &mut self,
        header: KeyHeader,
        key: Option<SecretString>,
        is_from_env: bool,
        variable: Option<&str>,
        is_optional: bool,
    ) -> Result<(), ConfigError> {
        let key = match key {
            None if is_from_env => Some(key_from_env(variable)?),
            key => key,
        };
        let is_optional = is_optional || self.http.is_some() || !self.headers.is_empty();
        if let (None, Some(variable), false) = (&key, variable, is_optional) {
            return Err(ConfigError(format!(
                "no API key; set one with `api_key`, or read it from {variable} with `api_key_from_env`"
            )));
        }
        self.key = key.map(|key| (header, key));
        Ok(())
    }

    /// Connects to the API at this URL.
    ///
    /// # Errors
    ///
    /// Fails if the key or a header cannot be sent, a setting is invalid, or the system has no certificates.
    pub fn connect(&self, base_url: Url) -> Result<Connection, ConfigError> {
        let mut redactor = Redactor::new("[key]", MIN_SECRET_BYTES);
        let mut headers = HeaderMap::new();
        if let Some((header, key)) = &self.key {
            let key = key.expose_secret();
            redactor.add(key);
            if key.trim().is_empty() {
                let message = "the API key is empty; set one, or none if the server needs none";
                return Err(ConfigError(message.into()));
            }
            if HeaderValue::from_str(key).is_err() {
                let message = "the API key contains a character that is not allowed in headers, such as a line break; trim it";
                return Err(ConfigError(message.into()));
            }
            match header {
                KeyHeader::Bearer => insert(&mut headers, "authorization", &format!("Bearer {key}"))?,
                KeyHeader::Named(name) => insert(&mut headers, name, key)?,
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
            return Err(ConfigError("`max_concurrent_requests` must be at least 1".into()));
        }
        let permits =
            self.max_concurrent_requests.map(|max| Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS))));
        let http = match &self.http {
            Some(http) => http.clone(),
            None => self.new_http_client(&base_url)?,
        };
        Ok(Connection { http, base_url, redactor, headers, permits })
    }

    /// Builds the client that is used if the user supplies none.
    fn new_http_client(&self, base_url: &Url) -> Result<Client, ConfigError> {
        let mut builder = new_client(base_url).map_err(|error| ConfigError(error.to_string()))?;
        if let Some(proxy) = &self.proxy {
            // The cause is not part of the message: the URL may contain a password.
            let proxy = Proxy::all(proxy.expose_secret()).map_err(|_| {
                ConfigError("invalid proxy URL; write it like `http://proxy.example:3128`".into())
            })?;
            builder = builder.proxy(proxy);
        }
        let timeout = |set: Option<Duration>, default| set.unwrap_or(default).min(LONGEST_TIMEOUT);
        builder
            .connect_timeout(timeout(self.connect_timeout, DEFAULT_CONNECT_TIMEOUT))
            .read_timeout(timeout(self.read_timeout, DEFAULT_READ_TIMEOUT))
            // A redirect may change the method or send the key to another host.
            .redirect(redirect::Policy::none())
            .build()
            .map_err(|error| ConfigError(format!("could not build the HTTP client: {error}")))
    }
}

fn insert(headers: &mut HeaderMap, name: &str, text: &str) -> Result<(), ConfigError> {
    let parsed = HeaderName::from_bytes(name.as_bytes());
    let parsed = parsed.map_err(|_| ConfigError(format!("invalid header name `{name}`")))?;
    // The value is not part of the message: it may be the key.
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        ConfigError(format!(
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
pub fn parse_base_url(text: &str, example: &str) -> Result<Url, ConfigError> {
    let invalid = |reason: &str| {
        // The query, and a password before an `@`, may be secret.
        let shown = text.split(['?', '#']).next().filter(|_| !text.contains('@'));
        let shown = shown.map(|text| format!(" `{text}`")).unwrap_or_default();
        ConfigError(format!("invalid base URL{shown}: {reason}; write it like `{example}`"))
    };
    let mut url = Url::parse(text).map_err(|error| invalid(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid("it must start with `https` or `http`"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(ConfigError(
            "the base URL contains a user name or password; set the key with `api_key`".into(),
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
pub fn read_variable(name: &str) -> Result<Option<String>, ConfigError> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value.trim().to_owned()).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => {
            Err(ConfigError(format!("the environment variable {name} is not valid Unicode")))
        }
    }
}

/// Reads the key of an endpoint from its environment variable.
///
/// # Errors
///
/// Fails if there is no variable, or it is not set.
pub fn key_from_env(name: Option<&str>) -> Result<SecretString, ConfigError> {
    let Some(name) = name else {
        return Err(ConfigError(
            "this endpoint has no environment variable for its key; set the key with `api_key`, if it needs one".into(),
        ));
    };
    read_variable(name)?.map(SecretString::from).ok_or_else(|| {
        ConfigError(format!(
            "the environment variable {name} is not set; set it, or set the key with `api_key`"
        ))
    })
}

/// A response with a status that reports success. The request is in flight until this is dropped.
#[derive(Debug)]
pub struct Success {
    /// The response, whose body is not read.
    pub response: Response,
    permit: Option<OwnedSemaphorePermit>,
}

impl Success {
    /// Returns the chunks of the body.
    #[must_use]
    pub fn into_bytes(self) -> BoxStream<'static, reqwest::Result<Bytes>> {
        let Self { response, permit } = self;
        let hold = move |_: &reqwest::Result<Bytes>| {
            // The permit is released with the stream.
            let _ = &permit;
        };
        response.bytes_stream().inspect(hold).boxed()
    }
}

/// Why there is no [`Success`].
#[derive(Debug)]
pub enum SendError {
    /// The connection failed.
    Transport(reqwest::Error),
    /// The response cannot be used.
    Response {
        /// The headers of the response.
        headers: HeaderMap,
        /// Why it cannot be used.
        reason: BadResponse,
    },
}

/// Why a response cannot be used.
#[derive(Debug)]
pub enum BadResponse {
    /// It is compressed, which the request does not accept; this rules out decompression bombs. A message for users names the encoding,
    /// because the body would look like garbage.
    Compressed(String),
    /// It is a redirect to this location, without secrets.
    Redirected(StatusCode, String),
    /// Its status reports an error. The body is limited to 64 KiB.
    Status(StatusCode, Bytes),
}

impl Connection {
    /// Sends JSON, or asks for it if there is no body, and returns the response if its status reports success.
    ///
    /// # Errors
    ///
    /// Fails if the connection does, or the response reports an error or cannot be read.
    pub async fn send(
        &self,
        url: Url,
        body: Option<&RequestBody>,
        accept: &'static str,
    ) -> Result<Success, SendError> {
        let permit = match &self.permits {
            // The semaphore is never closed.
            Some(permits) => Arc::clone(permits).acquire_owned().await.ok(),
            None => None,
        };
        let mut headers = self.headers.clone();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        let request = match body {
            Some(body) => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                self.http.post(url).body(body.to_body())
            }
            None => self.http.get(url),
        };
        let mut response = request.headers(headers).send().await.map_err(SendError::Transport)?;
        let Some(reason) = self.bad_response(&mut response).await else {
            return Ok(Success { response, permit });
        };
        Err(SendError::Response { headers: std::mem::take(response.headers_mut()), reason })
    }

    async fn bad_response(&self, response: &mut Response) -> Option<BadResponse> {
        let status = response.status();
        if status.is_success() {
            let encodings = response.headers().get_all(CONTENT_ENCODING).iter();
            let mut encodings = encodings.map(|value| value.to_str().unwrap_or("unreadable").trim());
            let is_encoding = |name: &&str| !name.is_empty() && !name.eq_ignore_ascii_case("identity");
            return encodings.find(is_encoding).map(|name| {
                BadResponse::Compressed(format!(
                    "the response is compressed ({name}), although the request does not accept that; turn compression off in \
                     the server or its proxy"
                ))
            });
        }
        if status.is_redirection() {
            let location = response.headers().get("location").and_then(|value| value.to_str().ok());
            let location = location.filter(|location| !location.trim().is_empty());
            let shown = location.map_or("an unknown location", without_query);
            return Some(BadResponse::Redirected(status, self.redactor.redact(&without_user_info(shown))));
        }
        let body = read_body(response, MAX_ERROR_BODY_BYTES).await;
        Some(BadResponse::Status(status, body.map(|body| body.bytes).unwrap_or_default()))
    }

    /// Returns the base URL, which ends with a slash.
    #[must_use]
    pub fn base_url(&self) -> &Url {
        &self.base_url
    }

    /// Returns the URL of a path below the base URL, which keeps its own path and query.
    #[must_use]
    pub fn url(&self, path: &str) -> Url {
        let mut url = self.base_url.clone();
        url.set_path(&format!("{}/{path}", self.base_url.path().trim_end_matches('/')));
        url
    }

    /// Returns `true` if one of these headers is sent.
    #[must_use]
    pub fn sends_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.headers.contains_key(*name))
    }

    /// Replaces secrets in a text of the server.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        self.redactor.redact(text)
    }
}

/// Shows the base URL, never the key.
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("base_url", &redact_url(&self.base_url)).finish_non_exhaustive()
    }
}

/// Shows no secret.
impl fmt::Debug for ConnectionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionConfig").finish_non_exhaustive()
    }
}

/// Returns a text that may be a URL, without its query and fragment.
fn without_query(text: &str) -> &str {
    text.split(['?', '#']).next().unwrap_or_default()
}

/// Returns a text that may be a URL, without its user name and password.
fn without_user_info(text: &str) -> String {
    let (scheme, rest) = text.split_at(text.find("//").map_or(0, |start| start + 2));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    format!("{scheme}{}{path}", authority.rsplit('@').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "https://api.example.org";

    fn connect(config: &ConnectionConfig, url: &str) -> Result<Connection, String> {
        let url = parse_base_url(url, EXAMPLE).map_err(|error| error.0)?;
        config.connect(url).map_err(|error| error.0)
    }

    #[test]
    fn a_base_url_keeps_its_path_and_query() {
        for (base_url, expected) in [
            ("http://localhost:1/v1", "http://localhost:1/v1/messages"),
            ("http://localhost:1/v1/", "http://localhost:1/v1/messages"),
            ("http://localhost:1?key=secret", "http://localhost:1/messages?key=secret"),
        ] {
            let connection = connect(&ConnectionConfig::default(), base_url).unwrap();
            assert_eq!(connection.url("messages").as_str(), expected);
            assert!(!format!("{connection:?}").contains("secret"));
        }
    }

    #[test]
    fn errors_contain_no_secrets() {
        for text in ["", "localhost:80", "file:///etc", "http://user:secret@host", "ftp://u:secret@host"] {
            let error = connect(&ConnectionConfig::default(), text).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
        let key = Some((KeyHeader::Bearer, SecretString::from("sk-\nsecret")));
        let error = connect(&ConnectionConfig { key, ..Default::default() }, EXAMPLE).unwrap_err();
        assert_eq!(
            error,
            "the API key contains a character that is not allowed in headers, such as a line break; trim it"
        );
    }

    #[test]
    fn locations_are_shown_without_secrets() {
        for (location, expected) in [
            ("https://user:secret@example.org/v1?key=secret#x", "https://example.org/v1"),
            ("/v1/messages?key=secret", "/v1/messages"),
        ] {
            assert_eq!(without_user_info(without_query(location)), expected);
        }
    }
}
