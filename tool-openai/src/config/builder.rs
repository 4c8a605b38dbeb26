//! Configures the client of an endpoint.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Proxy, Url, redirect};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Semaphore;
use tool_http::LONGEST_TIMEOUT;
use tool_http::client::{Redactor, key_from_env, new_client, read_variable};

use super::open_ai::OpenAi;
use crate::client::Client;
use crate::endpoint::{AuthScheme, Endpoint};
use crate::error::Error;
use crate::retry::RetryPolicy;
use crate::retry::{Retry, RetryBudget};
use crate::url_text::without_query;
use crate::warning::Warning;
use crate::warning::WarningHook;

/// OpenAI's own endpoint.
const DEFAULT_BASE_URL: &str = "https://api.openai.com/v1";

// The defaults of the official SDK: five seconds to connect, ten minutes between two reads.
// <https://github.com/openai/openai-python/blob/main/src/openai/_constants.py>
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_READ_TIMEOUT: Duration = Duration::from_secs(600);

/// The shortest key or value of a header or query that is redacted, in bytes. Shorter ones are no secrets and may be common
/// words: local servers accept keys such as `x` or `none`.
const MIN_SECRET_BYTES: usize = 16;

/// The environment variable that holds the key.
const API_KEY_VARIABLE: &str = "OPENAI_API_KEY";

/// The environment variable that holds the base URL.
const BASE_URL_VARIABLE: &str = "OPENAI_BASE_URL";

impl OpenAi {
    /// Creates the endpoint that the environment describes: the key in `OPENAI_API_KEY`, the base URL in `OPENAI_BASE_URL`.
    /// Without a base URL, it is OpenAI's own; with one, the key is optional, because many local servers need none. The
    /// organization and the project are read from `OPENAI_ORG_ID` and `OPENAI_PROJECT_ID`. Use [`builder`](Self::builder) to
    /// configure anything else.
    ///
    /// # Errors
    ///
    /// Fails if neither variable is set or if one of them has an invalid value.
    pub fn from_env() -> Result<Self, Error> {
        let (key, base_url) = (read_variable(API_KEY_VARIABLE)?, read_variable(BASE_URL_VARIABLE)?);
        if key.is_none() && base_url.is_none() {
            return Err(Error::config(format!(
                "the environment variable {API_KEY_VARIABLE} is not set; set it, or set {BASE_URL_VARIABLE} to a server that needs no key"
            )));
        }
        let mut builder = Self::builder();
        if let Some(key) = key {
            builder = builder.api_key(key);
        }
        if let Some(url) = base_url {
            builder = builder.base_url(url);
        }
        if let Some(organization) = read_variable("OPENAI_ORG_ID")? {
            builder = builder.organization(organization);
        }
        if let Some(project) = read_variable("OPENAI_PROJECT_ID")? {
            builder = builder.project(project);
        }
        builder.build()
    }

    /// Returns a builder for an endpoint.
    ///
    /// ```
    /// use tool_openai::OpenAi;
    ///
    /// let local = OpenAi::builder().base_url("http://127.0.0.1:8080/v1").build()?;
    /// # Ok::<_, tool_openai::Error>(())
    /// ```
    pub fn builder() -> OpenAiBuilder {
        OpenAiBuilder::default()
    }
}

/// Configures an [`OpenAi`] endpoint: see [`OpenAi::builder`].
#[derive(Clone, Default)]
#[must_use]
pub struct OpenAiBuilder {
    endpoint: Option<Endpoint>,
    api_key: Option<SecretString>,
    has_key_from_env: bool,
    base_url: Option<String>,
    headers: Vec<(String, SecretString)>,
    http: Option<reqwest::Client>,
    proxy: Option<SecretString>,
    connect_timeout: Option<Duration>,
    read_timeout: Option<Duration>,
    max_concurrent_requests: Option<usize>,
    retry: RetryPolicy,
    on_warning: Option<WarningHook>,
}

impl OpenAiBuilder {
    /// Sets the kind of endpoint. By default, it is detected from the host of the base URL.
    ///
    /// ```no_run
    /// use tool_openai::{Endpoint, OpenAi};
    ///
    /// let deepseek = OpenAi::builder().endpoint(Endpoint::deepseek()).api_key_from_env().build()?;
    /// # Ok::<_, tool_openai::Error>(())
    /// ```
    pub fn endpoint(mut self, endpoint: Endpoint) -> Self {
        self.endpoint = Some(endpoint);
        self
    }

    /// Sets the key. It is sent in the endpoint's [header](Endpoint::auth_scheme) and never shown. Without this and
    /// [`api_key_from_env`](Self::api_key_from_env), no key is sent.
    pub fn api_key(mut self, key: impl Into<SecretString>) -> Self {
        self.api_key = Some(key.into());
        self
    }

    /// Reads the key from the endpoint's [environment variable](Endpoint::api_key_variable), such as `OPENAI_API_KEY`.
    pub fn api_key_from_env(mut self) -> Self {
        self.has_key_from_env = true;
        self
    }

    /// Sets the base URL, including the version, such as `https://api.openai.com/v1`. By default, it is that of the
    /// [endpoint](Self::endpoint).
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// Sets the organization that is billed, if the key belongs to several.
    pub fn organization(self, organization: impl Into<String>) -> Self {
        self.header("openai-organization", organization.into())
    }

    /// Sets the project that is billed, if the key belongs to several.
    pub fn project(self, project: impl Into<String>) -> Self {
        self.header("openai-project", project.into())
    }

    /// Adds a header to every request, for example to identify the user to a gateway. It replaces a header of the same name,
    /// including that of the key. The value is never shown.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<SecretString>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the proxy for all requests, such as `http://proxy.example:3128`. By default, the system's settings apply, except
    /// for endpoints on this machine, which need no proxy.
    pub fn proxy(mut self, url: impl Into<SecretString>) -> Self {
        self.proxy = Some(url.into());
        self
    }

    /// Sets the HTTP client. Its own timeouts and proxy apply instead of those set here. It should not follow redirects
    /// ([`Policy::none`](reqwest::redirect::Policy::none)), which may send the request and the key to another host.
    ///
    /// The client is one of `reqwest` 0.13. Unless the program enables a TLS feature of `reqwest`, it must [install a
    /// provider](crate#another-http-client-in-the-same-program) first, because `reqwest` panics without one:
    ///
    /// ```
    /// use tool_openai::OpenAi;
    ///
    /// let _ = rustls::crypto::ring::default_provider().install_default();
    /// let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
    /// let openai = OpenAi::builder().base_url("http://127.0.0.1:8080/v1").http_client(client).build()?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "unstable-reqwest")]
    pub fn http_client(mut self, client: reqwest::Client) -> Self {
        self.http = Some(client);
        self
    }

    /// Limits the time to connect. The default is five seconds.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = Some(timeout.min(LONGEST_TIMEOUT));
        self
    }

    /// Limits the time between two reads, before the response and in the middle of it. The default is ten minutes. The total
    /// duration of a response is not limited.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.read_timeout = Some(timeout.min(LONGEST_TIMEOUT));
        self
    }

    /// Limits the number of requests in flight, for all models of the endpoint together; further requests wait. A stream is
    /// in flight until it is read to its end or dropped. By default, there is no limit.
    pub fn max_concurrent_requests(mut self, requests: usize) -> Self {
        self.max_concurrent_requests = Some(requests);
        self
    }

    /// Limits the retries of a request that fails with a [retryable](Error::is_retryable) error. The default is two. The
    /// delay is the one that the server requests; otherwise it is half a second, doubles with each retry, and is randomly
    /// shortened a little. A stream that has started is not retried.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.retry.limits.max = retries;
        self
    }

    /// Limits the retries of all requests together. By default, there is no such limit.
    pub fn retry_budget(mut self, budget: RetryBudget) -> Self {
        self.retry.limits.budget = Some(budget);
        self
    }

    /// Sets a function that is called before the delay of each retry.
    ///
    /// ```
    /// use tool_openai::OpenAi;
    ///
    /// let openai = OpenAi::builder()
    ///     .base_url("http://127.0.0.1:8080/v1")
    ///     .on_retry(|retry| eprintln!("retry {} in {:?}: {}", retry.number, retry.delay, retry.error))
    ///     .build()?;
    /// # Ok::<_, tool_openai::Error>(())
    /// ```
    pub fn on_retry(mut self, hook: impl Fn(&Retry<'_>) + Send + Sync + 'static) -> Self {
        self.retry.on_retry = Some(Arc::new(hook));
        self
    }

    /// Sets a function that is called when a request is [changed](Warning) because the [endpoint](Endpoint) would not accept
    /// it.
    pub fn on_warning(mut self, hook: impl Fn(&Warning<'_>) + Send + Sync + 'static) -> Self {
        self.on_warning = Some(Arc::new(hook));
        self
    }

    /// Builds the endpoint. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// Fails if the base URL or a header is invalid, if the key is not in the environment although it should be, if OpenAI
    /// or another provider that needs a key has none, or if the system has no certificates.
    pub fn build(self) -> Result<OpenAi, Error> {
        let base_url = match (&self.base_url, &self.endpoint) {
            (Some(url), _) => parse_base_url(url)?,
            (None, None) => parse_base_url(DEFAULT_BASE_URL)?,
            (None, Some(Endpoint { base_url: Some(url), .. })) => parse_base_url(url)?,
            (None, Some(_)) => {
                return Err(Error::config("the endpoint has no base URL; set one with `base_url`"));
            }
        };
        let has_default_url = self.base_url.is_none();
        let endpoint = self.endpoint.clone().unwrap_or_else(|| Endpoint::from_url(&base_url));
        let key = match self.api_key.clone() {
            None if self.has_key_from_env => Some(key_from_env(endpoint.api_key_variable.as_deref())?),
            key => key,
        };
        // Another server may need no key, and a custom client or header may provide it.
        let is_key_optional = self.http.is_some() || !self.headers.is_empty();
        if let (None, Some(variable)) = (&key, &endpoint.api_key_variable)
            && has_default_url
            && !is_key_optional
        {
            return Err(Error::config(format!(
                "no API key; set one with `api_key`, or read it from {variable} with `api_key_from_env`"
            )));
        }
        let headers = headers(&endpoint, key.as_ref(), &self.headers)?;
        // The names of the organization and the project help to understand an error.
        let headers_with_secrets = self.headers.iter().filter(|(name, _)| !name.starts_with("openai-"));
        let values = headers_with_secrets.map(|(_, value)| value.clone()).chain(query_values(&base_url));
        let mut redactor = Redactor::new("[key]", MIN_SECRET_BYTES);
        key.iter().for_each(|key| redactor.add(key.expose_secret()));
        values.for_each(|value| redactor.add_header(value.expose_secret()));
        if self.max_concurrent_requests == Some(0) {
            return Err(Error::config("`max_concurrent_requests` must be at least 1"));
        }
        let permits =
            self.max_concurrent_requests.map(|max| Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS))));
        let http = match &self.http {
            Some(http) => http.clone(),
            None => self.new_http_client(&base_url)?,
        };
        Ok(OpenAi(Arc::new(Client {
            http,
            endpoint: Arc::new(endpoint),
            base_url,
            redactor,
            headers,
            retry: self.retry,
            permits,
            on_warning: self.on_warning,
        })))
    }

    /// Builds the client that is used if the user supplies none.
    fn new_http_client(&self, base_url: &Url) -> Result<reqwest::Client, Error> {
        let mut builder = new_client(base_url).map_err(|error| Error::config(error.to_string()))?;
        if let Some(proxy) = &self.proxy {
            // The cause is not part of the message: the URL may contain a password.
            let proxy = Proxy::all(proxy.expose_secret())
                .map_err(|_| Error::config("invalid proxy URL; write it like `http://proxy.example:3128`"))?;
            builder = builder.proxy(proxy);
        }
        builder
            .connect_timeout(self.connect_timeout.unwrap_or(DEFAULT_CONNECT_TIMEOUT))
            .read_timeout(self.read_timeout.unwrap_or(DEFAULT_READ_TIMEOUT))
            // A redirect may change the method or send the key to another host.
            .redirect(redirect::Policy::none())
            .build()
            .map_err(|error| Error::config(format!("could not build the HTTP client: {error}")))
    }
}

fn headers(
    endpoint: &Endpoint,
    key: Option<&SecretString>,
    extra: &[(String, SecretString)],
) -> Result<HeaderMap, Error> {
    let mut map = HeaderMap::new();
    let mut set = |name: &str, text: &str| {
        let parsed = HeaderName::from_bytes(name.as_bytes());
        let parsed = parsed.map_err(|_| Error::config(format!("invalid header name `{name}`")))?;
        // The value is not part of the message: it may be the key.
        let mut value = HeaderValue::from_str(text).map_err(|_| {
            Error::config(format!(
                "the value of the header `{name}` contains a character that is not allowed in headers"
            ))
        })?;
        value.set_sensitive(true);
        map.insert(parsed, value);
        Ok::<_, Error>(())
    };
    if let Some(key) = key.map(ExposeSecret::expose_secret) {
        if key.trim().is_empty() {
            return Err(Error::config("the API key is empty; set one, or none if the server needs none"));
        }
        if HeaderValue::from_str(key).is_err() {
            return Err(Error::config(
                "the API key contains a character that is not allowed in headers, such as a line break; trim it",
            ));
        }
        match endpoint.auth_scheme {
            AuthScheme::Bearer => set("authorization", &format!("Bearer {key}"))?,
            AuthScheme::ApiKey => set("api-key", key)?,
        }
    }
    for (name, value) in extra {
        set(name, value.expose_secret())?;
    }
    Ok(map)
}

fn parse_base_url(text: &str) -> Result<Url, Error> {
    let invalid = |reason: &str| {
        let url = displayable(text).map(|text| format!(" `{text}`")).unwrap_or_default();
        Error::config(format!("invalid base URL{url}: {reason}; write it like `{DEFAULT_BASE_URL}`"))
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
    if url.path().trim_end_matches('/').ends_with("/chat/completions") {
        return Err(invalid("it must not contain `/chat/completions`"));
    }
    // So that a path is appended to it instead of replacing its last segment.
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    Ok(url)
}

/// Returns the values of the query, as they are in the URL and decoded. Azure's version helps to understand an error.
fn query_values(url: &Url) -> impl Iterator<Item = SecretString> {
    let pairs =
        url.query().unwrap_or_default().split('&').map(|pair| pair.split_once('=').unwrap_or(("", pair)));
    let encoded =
        pairs.filter(|(name, _)| *name != "api-version").map(|(_, value)| SecretString::from(value));
    let decoded = url.query_pairs().filter(|(name, _)| name != "api-version");
    encoded.chain(decoded.map(|(_, value)| SecretString::from(value.into_owned())))
}

/// Returns the part of a possible URL that contains no secret, which the query and a password before an `@` may be.
fn displayable(text: &str) -> Option<&str> {
    Some(without_query(text)).filter(|_| !text.contains('@'))
}

/// Shows the base URL, never the key.
impl fmt::Debug for OpenAiBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base_url = self.base_url.as_deref().and_then(displayable);
        f.debug_struct("OpenAiBuilder").field("base_url", &base_url).finish_non_exhaustive()
    }
}
