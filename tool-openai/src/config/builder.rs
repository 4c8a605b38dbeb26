//! Configures the client of an endpoint.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tool_http::client::{
    ConnectionConfig, Error, Retry, RetryBudget, RetryPolicy, TokenSource, read_variable, redact_url,
};

use super::open_ai::OpenAi;
use crate::client::Client;
use crate::endpoint::Endpoint;
use crate::known_errors::KNOWN_ERRORS;
use crate::warning::{Warning, WarningHook};

/// OpenAI's own endpoint.
const DEFAULT_BASE_URL: &str = "https://api.openai.com/v1";

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
        let connection = ConnectionConfig::from_env("OPENAI_API_KEY", "OPENAI_BASE_URL")?;
        let mut builder = OpenAiBuilder { connection, ..Self::builder() };
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
    connection: ConnectionConfig,
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
        self.connection.api_key = Some(key.into());
        self
    }

    /// Reads the key from the endpoint's [environment variable](Endpoint::api_key_variable), such as `OPENAI_API_KEY`.
    pub fn api_key_from_env(mut self) -> Self {
        self.connection.has_key_from_env = true;
        self
    }

    /// Sets the source of tokens that expire, in place of a key: a closure, or a [`TokenSource`] of your own. Tokens are sent as
    /// `Authorization: Bearer …`, only over `https` or to this machine, and never shown. A source and a key cannot be combined, nor a
    /// source and an HTTP client of your own.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tool_openai::{OpenAi, Token};
    ///
    /// # async fn login() -> Result<String, std::io::Error> { Ok("…".into()) }
    /// let builder = OpenAi::builder().token_source(|| async {
    ///     // The official library of a cloud gives the token and its time.
    ///     Ok::<_, std::io::Error>(Token::new(login().await?).expires_in(Duration::from_secs(3600)))
    /// });
    /// # let _ = builder;
    /// ```
    pub fn token_source(mut self, source: impl TokenSource + 'static) -> Self {
        self.connection.token_source = Some(Arc::new(source));
        self
    }

    /// Sets the base URL, including the version, such as `https://api.openai.com/v1`. The default belongs to the
    /// [endpoint](Self::endpoint).
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.connection.base_url = Some(url.into());
        self
    }

    /// Sets the organization that is billed, if the key belongs to several.
    pub fn organization(mut self, organization: impl Into<String>) -> Self {
        self.connection.plain_headers.push(("openai-organization".into(), organization.into()));
        self
    }

    /// Sets the project that is billed, if the key belongs to several.
    pub fn project(mut self, project: impl Into<String>) -> Self {
        self.connection.plain_headers.push(("openai-project".into(), project.into()));
        self
    }

    /// Adds a header to every request, for example to identify the user to a gateway. It replaces a header of the same name,
    /// including the key's. The value is never shown.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<SecretString>) -> Self {
        self.connection.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the proxy for all requests, such as `http://proxy.example:3128`. By default, the system's settings apply, except
    /// for endpoints on this machine, which need no proxy.
    pub fn proxy(mut self, url: impl Into<SecretString>) -> Self {
        self.connection.proxy = Some(url.into());
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
        self.connection.http = Some(client);
        self
    }

    /// Limits the time to connect. The default is five seconds.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connection.connect_timeout = Some(timeout);
        self
    }

    /// Limits the time between two reads, before the response and in the middle of it. The default is ten minutes. The total
    /// duration of a response is not limited.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.connection.read_timeout = Some(timeout);
        self
    }

    /// Limits the number of requests in flight, for all models of the endpoint together; further requests wait. A stream is
    /// in flight until it is read to its end or dropped. By default, there is no limit.
    pub fn max_concurrent_requests(mut self, requests: usize) -> Self {
        self.connection.max_concurrent_requests = Some(requests);
        self
    }

    /// Limits the retries of a request that fails with a [retryable](Error::is_retryable) error. The default is two. The
    /// delay is the one that the server requests; otherwise it is half a second, doubles with each retry, and is randomly
    /// shortened a little. A stream that has started is not retried.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.retry.max = retries;
        self
    }

    /// Limits the retries of all requests together. By default, there is no such limit.
    pub fn retry_budget(mut self, budget: RetryBudget) -> Self {
        self.retry.budget = Some(budget);
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
        let Self { endpoint, mut connection, retry, on_warning } = self;
        let known = endpoint.as_ref().map_or(Some(DEFAULT_BASE_URL), |endpoint| endpoint.base_url.as_deref());
        let base_url = connection.base_url(known, DEFAULT_BASE_URL, "/chat/completions")?;
        let endpoint = Arc::new(endpoint.unwrap_or_else(|| Endpoint::from_url(&base_url)));
        // Some providers, such as DeepSeek, have no version in their base URL.
        let known = endpoint.base_url.as_deref().unwrap_or_default();
        let lacks_version =
            base_url.path() == "/" && known.trim_end_matches('/') != base_url.as_str().trim_end_matches('/');
        connection.suggested_base_url =
            lacks_version.then(|| format!("{}/v1", redact_url(&base_url).trim_end_matches('/')));
        connection.known_errors = KNOWN_ERRORS;
        let connection =
            connection.connect(base_url, endpoint.auth_scheme, endpoint.api_key_variable.as_deref())?;
        Ok(OpenAi(Arc::new(Client { connection, endpoint, retry, on_warning, contexts: Default::default() })))
    }
}

/// Shows nothing that may contain the key.
impl fmt::Debug for OpenAiBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiBuilder").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
