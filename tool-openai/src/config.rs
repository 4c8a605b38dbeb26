//! Where the endpoint is, and how it is reached.

use std::env::VarError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};

use crate::client::Client;
use crate::{ChatCompletions, Error, Responses};

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
    /// many local servers want none.
    ///
    /// # Errors
    ///
    /// Neither variable is set, or one of them holds what cannot be used.
    pub fn from_env() -> Result<Self, Error> {
        let read = |name| match std::env::var(name) {
            Ok(value) => Ok(Some(value).filter(|value| !value.trim().is_empty())),
            Err(VarError::NotPresent) => Ok(None),
            Err(VarError::NotUnicode(_)) => Err(Error::config(format!("{name} holds what is no text"))),
        };
        let (key, base_url) = (read(KEY_VARIABLE)?, read(BASE_URL_VARIABLE)?);
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
    key: Option<SecretString>,
    base_url: String,
    organization: Option<String>,
    project: Option<String>,
    connect_timeout: Duration,
    read_timeout: Duration,
}

impl Default for OpenAiBuilder {
    fn default() -> Self {
        Self {
            key: None,
            base_url: DEFAULT_BASE_URL.into(),
            organization: None,
            project: None,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            read_timeout: DEFAULT_READ_TIMEOUT,
        }
    }
}

impl OpenAiBuilder {
    /// The key. It is sent as a bearer token and shown nowhere.
    pub fn api_key(mut self, key: impl Into<SecretString>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Where the endpoint is, with its version, such as `https://api.openai.com/v1`, which it is unless it is set.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = url.into();
        self
    }

    /// The organisation that a request is counted for, where a key has several.
    pub fn organization(mut self, organization: impl Into<String>) -> Self {
        self.organization = Some(organization.into());
        self
    }

    /// The project that a request is counted for, where a key has several.
    pub fn project(mut self, project: impl Into<String>) -> Self {
        self.project = Some(project.into());
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

    /// The endpoint. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// The base URL is not one, a value cannot stand in a header, or the system has no certificates to
    /// tell a server by.
    pub fn build(self) -> Result<OpenAi, Error> {
        let base_url = parse_base_url(&self.base_url)?;
        let mut headers = Vec::new();
        if let Some(key) = &self.key {
            headers.push(("authorization", format!("Bearer {}", key.expose_secret())));
        }
        headers.extend(self.organization.map(|organization| ("openai-organization", organization)));
        headers.extend(self.project.map(|project| ("openai-project", project)));
        let client = Client::new(base_url, self.key, headers, self.connect_timeout, self.read_timeout)?;
        Ok(OpenAi(Arc::new(client)))
    }
}

fn parse_base_url(text: &str) -> Result<Url, Error> {
    let wrong = |why: &str| {
        // A user name and a password may stand in front of the `@`.
        let came = if text.contains('@') { String::new() } else { format!(", not `{text}`") };
        Error::config(format!("the base URL {why}; write one such as `{DEFAULT_BASE_URL}`{came}"))
    };
    let mut url = Url::parse(text).map_err(|error| wrong(&format!("is not one ({error})")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("begins with neither `https` nor `http`"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Error::config("the base URL holds a user name or a password; give the key as the key"));
    }
    // So that a path joined to it is put behind it, and not in the place of its last part.
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    Ok(url)
}

/// Tells where the endpoint is, never the key.
impl fmt::Debug for OpenAiBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiBuilder").field("base_url", &self.base_url).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_may_end_with_a_slash_or_not() {
        for text in ["http://localhost:1/v1", "http://localhost:1/v1/"] {
            let openai = OpenAi::builder().base_url(text).build().unwrap();
            assert_eq!(openai.0.url("chat/completions").as_str(), "http://localhost:1/v1/chat/completions");
        }
    }

    #[test]
    fn a_query_stays_and_is_not_shown() {
        let openai = OpenAi::builder().base_url("http://localhost:1/v1?version=1&secret=x").build().unwrap();
        let url = openai.0.url("chat/completions");
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
}
