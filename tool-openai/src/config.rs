//! Where the endpoint is, and how it is reached.

use std::env::VarError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Semaphore;

use crate::client::{Client, without_query};
use crate::retry::RetryPolicy;
use crate::tools::WarningHook;
use crate::{ChatCompletions, Endpoint, Error, KeyHeader, Responses, Retry, RetryBudget, Warning, http};

/// The environment variable with the key.
const KEY_VARIABLE: &str = "OPENAI_API_KEY";

/// The environment variable with the base URL.
const BASE_URL_VARIABLE: &str = "OPENAI_BASE_URL";

/// OpenAI's own endpoint.
const DEFAULT_BASE_URL: &str = "https://api.openai.com/v1";

// The official SDK's: five seconds to connect, ten minutes between two reads.
// <https://github.com/openai/openai-python/blob/main/src/openai/_constants.py>
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_READ_TIMEOUT: Duration = Duration::from_secs(600);

/// An OpenAI-compatible endpoint. Cloning shares its connections.
#[derive(Clone)]
pub struct OpenAi(Arc<Client>);

impl OpenAi {
    /// The endpoint that the environment names: the key in `OPENAI_API_KEY`, the base URL in
    /// `OPENAI_BASE_URL`. Without a base URL it is OpenAI's own; with one, the key may be missing, as
    /// many local servers want none. All else is set by [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// Neither variable is set, or one of them holds what cannot be used.
    pub fn from_env() -> Result<Self, Error> {
        let (key, base_url) = (variable(KEY_VARIABLE)?, variable(BASE_URL_VARIABLE)?);
        if key.is_none() && base_url.is_none() {
            return Err(Error::config(format!(
                "{KEY_VARIABLE} is not set; set it, or set {BASE_URL_VARIABLE} to a server that needs no key"
            )));
        }
        let mut builder = Self::builder();
        if let Some(key) = key {
            builder = builder.api_key(key.trim());
        }
        if let Some(url) = base_url {
            builder = builder.base_url(url.trim());
        }
        builder.build()
    }

    /// An endpoint set by hand.
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

    /// A model of this endpoint, through Chat Completions.
    #[must_use]
    pub fn chat_model(&self, name: impl Into<String>) -> ChatCompletions {
        ChatCompletions::new(Arc::clone(&self.0), name.into())
    }

    /// A model of this endpoint, through the Responses API.
    ///
    /// ```
    /// use tool_openai::OpenAi;
    ///
    /// let openai = OpenAi::builder().api_key("…").build()?;
    /// let model = openai.responses_model("gpt-5-mini").with_reasoning_summary("auto");
    /// assert_eq!(model.name(), "gpt-5-mini");
    /// # Ok::<_, tool_openai::Error>(())
    /// ```
    #[must_use]
    pub fn responses_model(&self, name: impl Into<String>) -> Responses {
        Responses::new(Arc::clone(&self.0), name.into())
    }
}

/// Tells where the endpoint is, never the key.
impl fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenAi").field(&self.0).finish()
    }
}

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

    /// Is told of what was [cut](Warning) in a request so that the endpoint takes it. What an endpoint does not know at all, as
    /// its [switches](Endpoint) say, is left out without a word.
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
        let endpoint = self.endpoint.unwrap_or_else(|| Endpoint::at(&base_url));
        let key = match self.key {
            None if self.has_key_of_environment => Some(key_of_environment(&endpoint)?),
            key => key,
        };
        let headers = headers(&endpoint, key.as_ref(), &self.headers)?;
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
            key,
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
            KeyHeader::Bearer => set("authorization", &format!("Bearer {key}"))?,
            KeyHeader::ApiKey => set("api-key", key)?,
        }
    }
    for (name, value) in others {
        set(name, value.expose_secret())?;
    }
    Ok(map)
}

/// A variable of the environment that is not blank.
fn variable(name: &str) -> Result<Option<String>, Error> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.trim().is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Error::config(format!("{name} holds what is no text"))),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_may_end_with_a_slash_or_not() {
        for text in ["http://localhost:1/v1", "http://localhost:1/v1/"] {
            let openai = OpenAi::builder().base_url(text).build().unwrap();
            assert_eq!(
                openai.0.url("chat/completions", "m").as_str(),
                "http://localhost:1/v1/chat/completions"
            );
        }
    }

    #[test]
    fn a_query_stays_and_is_not_shown() {
        let openai = OpenAi::builder().base_url("http://localhost:1/v1?version=1&secret=x").build().unwrap();
        let url = openai.0.url("chat/completions", "m");
        assert_eq!(url.as_str(), "http://localhost:1/v1/chat/completions?version=1&secret=x");
        assert!(!format!("{openai:?}").contains("secret"), "{openai:?}");
    }

    #[test]
    fn what_is_no_base_url_is_refused() {
        for text in [
            "",
            "localhost",
            "localhost:80/v1",
            "file:///etc/passwd",
            "http://user:secret@host/v1",
            "ftp://user:secret@host",
            "http://user:secret@ho st/v1",
            "http://localhost/v1/chat/completions",
            "http://localhost/v1/chat/completions/?api-version=1",
        ] {
            let error = OpenAi::builder().base_url(text).build().unwrap_err();
            assert!(error.is_config());
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn the_key_is_shown_nowhere() {
        let builder = OpenAi::builder().api_key("sk-secret").base_url("http://localhost/v1");
        assert!(!format!("{builder:?}").contains("sk-secret"));
        let openai = builder.build().unwrap();
        assert!(!format!("{openai:?} {:?}", openai.chat_model("m")).contains("sk-secret"));
        let error =
            OpenAi::builder().api_key("sk-\nsecret").base_url("http://localhost/v1").build().unwrap_err();
        assert!(error.is_config() && !format!("{error} {error:?}").contains("secret"), "{error}");
    }

    #[test]
    fn a_key_that_cannot_be_sent_is_told_as_such() {
        for (key, expected) in
            [("", "the key is empty; "), (" ", "the key is empty; "), ("sk\n", "the key has a ")]
        {
            let error = OpenAi::builder().api_key(key).base_url("http://localhost/v1").build().unwrap_err();
            assert!(error.is_config() && error.to_string().starts_with(expected), "{error}");
        }
    }
}
