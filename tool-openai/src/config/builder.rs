//! Sets an endpoint by hand.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Semaphore;

use super::{OpenAi, variable};
use crate::client::{Client, without_query};
use crate::retry::RetryPolicy;
use crate::tools::WarningHook;
use crate::{AuthScheme, Endpoint, Error, Retry, RetryBudget, Warning, http};

/// OpenAI's own endpoint.
const DEFAULT_BASE_URL: &str = "https://api.openai.com/v1";

// The official SDK's: five seconds to connect, ten minutes between two reads.
// <https://github.com/openai/openai-python/blob/main/src/openai/_constants.py>
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_READ_TIMEOUT: Duration = Duration::from_secs(600);

/// A header of fewer characters is no secret, and its value may be a common word.
const SHORTEST_SECRET: usize = 16;

/// Sets an [`OpenAi`] by hand.
#[derive(Clone)]
#[must_use]
pub struct OpenAiBuilder {
    endpoint: Option<Endpoint>,
    key: Option<SecretString>,
    has_key_of_environment: bool,
    base_url: Option<String>,
    headers: Vec<(String, SecretString)>,
    http: Option<reqwest::Client>,
    proxy: Option<SecretString>,
    connect_timeout: Duration,
    read_timeout: Duration,
    max_concurrent: Option<usize>,
    retry: RetryPolicy,
    on_warning: Option<WarningHook>,
}

impl Default for OpenAiBuilder {
    fn default() -> Self {
        Self {
            endpoint: None,
            key: None,
            has_key_of_environment: false,
            base_url: None,
            headers: Vec::new(),
            http: None,
            proxy: None,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            read_timeout: DEFAULT_READ_TIMEOUT,
            max_concurrent: None,
            retry: RetryPolicy::default(),
            on_warning: None,
        }
    }
}

impl OpenAiBuilder {
    /// What is particular to the endpoint, and where it is. Unless it is set, the base URL's host tells.
    ///
    /// ```no_run
    /// use tool_openai::{Endpoint, OpenAi};
    ///
    /// let deepseek = OpenAi::builder().endpoint(Endpoint::deepseek()).key_from_env().build()?;
    /// # Ok::<_, tool_openai::Error>(())
    /// ```
    pub fn endpoint(mut self, endpoint: Endpoint) -> Self {
        self.endpoint = Some(endpoint);
        self
    }

    /// The key. It is sent as the endpoint [wants it](Endpoint::key_header) and shown nowhere. Without one, and without
    /// [`key_from_env`](Self::key_from_env), none is sent.
    pub fn api_key(mut self, key: impl Into<SecretString>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Takes the key from the endpoint's own [environment variable](Endpoint::key_variable), such as `OPENAI_API_KEY`.
    pub fn key_from_env(mut self) -> Self {
        self.has_key_of_environment = true;
        self
    }

    /// Where the endpoint is, with its version, such as `https://api.openai.com/v1`; unless it is set, where the
    /// [endpoint](Self::endpoint) says.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// The organisation that a request is counted for, where a key has several.
    pub fn organization(self, organization: impl Into<String>) -> Self {
        self.header("openai-organization", organization.into())
    }

    /// The project that a request is counted for, where a key has several.
    pub fn project(self, project: impl Into<String>) -> Self {
        self.header("openai-project", project.into())
    }

    /// A header of every request, such as those by which a gateway tells its users. One of the same name is replaced, that of
    /// the key too. The value is shown nowhere.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<SecretString>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// A proxy for all requests, such as `http://proxy.example:3128`. Unless it is set, it is what the system says, and none
    /// to this machine itself.
    pub fn proxy(mut self, url: impl Into<SecretString>) -> Self {
        self.proxy = Some(url.into());
        self
    }

    /// The HTTP client, in the place of one that is made here: its own timeouts and proxy hold, and none of those that are
    /// set here. It should not follow redirects ([`Policy::none`](reqwest::redirect::Policy::none)): they may carry what
    /// is sent, the key with it, to another host.
    ///
    /// It is one of `reqwest` 0.13. Unless the program switches on a TLS of that itself, it is [told of
    /// one](crate#another-http-client-in-the-same-program) first, as `reqwest` panics without:
    ///
    /// ```
    /// use tool_openai::OpenAi;
    ///
    /// let _ = rustls::crypto::ring::default_provider().install_default();
    /// let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
    /// let openai = OpenAi::builder().base_url("http://127.0.0.1:8080/v1").http_client(client).build()?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn http_client(mut self, client: reqwest::Client) -> Self {
        self.http = Some(client);
        self
    }

    /// How long connecting may take; five seconds unless it is set.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long the endpoint may be silent, before its answer or in the middle of it; ten minutes unless
    /// it is set. An answer that keeps coming may take as long as it likes.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.read_timeout = timeout;
        self
    }

    /// How many requests may be under way at once, to all models of the endpoint; the others wait. A stream is under way until
    /// it is read to the end, or dropped. Unbounded unless it is set.
    pub fn max_concurrent_requests(mut self, requests: usize) -> Self {
        self.max_concurrent = Some(requests);
        self
    }

    /// How often a request is sent again whose failure [may pass](Error::is_retryable); twice unless it is set. Before that is
    /// waited as long as the server wishes, or half a second and each time twice as long, a little less by chance. A
    /// stream that has begun is not asked for again.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.retry.max = retries;
        self
    }

    /// What bounds the retries of all requests together; nothing unless it is set.
    pub fn retry_budget(mut self, budget: RetryBudget) -> Self {
        self.retry.budget = Some(budget);
        self
    }

    /// Is told of each request that is going to be sent again, before the delay.
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

    /// Is told of what was [changed or left out](Warning) in a request, because the endpoint, as its [switches](Endpoint)
    /// say, would not take it.
    pub fn on_warning(mut self, hook: impl Fn(&Warning<'_>) + Send + Sync + 'static) -> Self {
        self.on_warning = Some(Arc::new(hook));
        self
    }

    /// The endpoint. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// The base URL is not one, the key is to come from the environment and is not there, a value cannot stand in a header,
    /// or the system has no certificates to tell a server by.
    pub fn build(self) -> Result<OpenAi, Error> {
        let base_url = match (&self.base_url, &self.endpoint) {
            (Some(url), _) => parse_base_url(url)?,
            (None, None) => parse_base_url(DEFAULT_BASE_URL)?,
            (None, Some(endpoint)) if endpoint.base_url.is_empty() => {
                return Err(Error::config("the endpoint does not say where it is; set the base URL"));
            }
            (None, Some(endpoint)) => parse_base_url(&endpoint.base_url)?,
        };
        let is_where_it_says = self.base_url.is_none();
        let endpoint = self.endpoint.unwrap_or_else(|| Endpoint::at(&base_url));
        let key = match self.key {
            None if self.has_key_of_environment => Some(key_of_environment(&endpoint)?),
            key => key,
        };
        // Another server may want none, and a client of one's own may send it.
        let may_lack_key =
            endpoint.key_variable.is_empty() || self.http.is_some() || !self.headers.is_empty();
        if key.is_none() && is_where_it_says && !may_lack_key {
            let variable = &endpoint.key_variable;
            return Err(Error::config(format!(
                "there is no key; give it by `api_key`, or take it from {variable} by `key_from_env`"
            )));
        }
        let headers = headers(&endpoint, key.as_ref(), &self.headers)?;
        // What the organisation and the project are called helps to understand an error.
        let of_headers = self.headers.iter().filter(|(name, _)| !name.starts_with("openai-"));
        let of_headers = of_headers.map(|(_, value)| value);
        let of_headers = of_headers.filter(|value| value.expose_secret().len() >= SHORTEST_SECRET);
        let secrets = key.iter().chain(of_headers).cloned().collect();
        if self.max_concurrent == Some(0) {
            return Err(Error::config("no request may be under way at once; allow 1 at least"));
        }
        let room = self.max_concurrent.map(|most| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))));
        let proxy = self.proxy.as_ref().map(ExposeSecret::expose_secret);
        let http = match self.http {
            Some(http) => http,
            None => http::client(&base_url, proxy, self.connect_timeout, self.read_timeout)?,
        };
        Ok(OpenAi(Arc::new(Client {
            http,
            endpoint: Arc::new(endpoint),
            base_url,
            secrets,
            headers,
            retry: self.retry,
            room,
            on_warning: self.on_warning,
        })))
    }
}

fn key_of_environment(endpoint: &Endpoint) -> Result<SecretString, Error> {
    let name = &*endpoint.key_variable;
    if name.is_empty() {
        return Err(Error::config("this endpoint has no variable for its key; give the key, or none"));
    }
    match variable(name)? {
        Some(key) => Ok(key.trim().into()),
        None => Err(Error::config(format!("{name} is not set; set it, or give the key"))),
    }
}

fn headers(
    endpoint: &Endpoint,
    key: Option<&SecretString>,
    others: &[(String, SecretString)],
) -> Result<HeaderMap, Error> {
    let mut map = HeaderMap::new();
    let mut set = |name: &str, text: &str| {
        let parsed = HeaderName::from_bytes(name.as_bytes());
        let parsed = parsed.map_err(|_| Error::config(format!("`{name}` is no name of a header")))?;
        // The value stays out of the message: it may be the key.
        let mut value = HeaderValue::from_str(text).map_err(|_| {
            Error::config(format!(
                "the value for the header `{name}` has a character that no header may have"
            ))
        })?;
        value.set_sensitive(true);
        map.insert(parsed, value);
        Ok(())
    };
    if let Some(key) = key.map(ExposeSecret::expose_secret) {
        if key.trim().is_empty() {
            return Err(Error::config("the key is empty; give one, or none to a server that needs none"));
        }
        if HeaderValue::from_str(key).is_err() {
            return Err(Error::config(
                "the key has a character that no header may have, such as a line break at its end; trim it",
            ));
        }
        match endpoint.key_header {
            AuthScheme::Bearer => set("authorization", &format!("Bearer {key}"))?,
            AuthScheme::ApiKey => set("api-key", key)?,
        }
    }
    for (name, value) in others {
        set(name, value.expose_secret())?;
    }
    Ok(map)
}

fn parse_base_url(text: &str) -> Result<Url, Error> {
    let wrong = |why: &str| {
        let came = text_shown(text).map(|text| format!(", not `{text}`")).unwrap_or_default();
        Error::config(format!("the base URL {why}; write one such as `{DEFAULT_BASE_URL}`{came}"))
    };
    let mut url = Url::parse(text).map_err(|error| wrong(&format!("is not one ({error})")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("begins with neither `https` nor `http`"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Error::config("the base URL holds a user name or a password; give the key as the key"));
    }
    if url.path().trim_end_matches('/').ends_with("/chat/completions") {
        return Err(wrong("is the address of one API; leave out `/chat/completions`"));
    }
    // So that a path joined to it is put behind it, and not in the place of its last part.
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    Ok(url)
}

/// As much of what is to be a URL as holds no secret: a query may be one, and a password may stand in front of an `@`.
fn text_shown(text: &str) -> Option<&str> {
    Some(without_query(text)).filter(|_| !text.contains('@'))
}

/// Tells where the endpoint is, never the key.
impl fmt::Debug for OpenAiBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base_url = self.base_url.as_deref().and_then(text_shown);
        f.debug_struct("OpenAiBuilder").field("base_url", &base_url).finish_non_exhaustive()
    }
}
