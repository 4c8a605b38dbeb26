//! The address of an endpoint and how to connect to it.

mod builder;

use std::env::VarError;
use std::fmt;
use std::sync::Arc;

pub use self::builder::OpenAiBuilder;
use crate::client::Client;
use crate::{ChatCompletions, Error, Responses};

/// The environment variable that holds the key.
const API_KEY_VARIABLE: &str = "OPENAI_API_KEY";

/// The environment variable that holds the base URL.
const BASE_URL_VARIABLE: &str = "OPENAI_BASE_URL";

/// An OpenAI-compatible endpoint. Clones share its connections.
#[derive(Clone)]
pub struct OpenAi(Arc<Client>);

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
            builder = builder.api_key(key.trim());
        }
        if let Some(url) = base_url {
            builder = builder.base_url(url.trim());
        }
        if let Some(organization) = read_variable("OPENAI_ORG_ID")? {
            builder = builder.organization(organization.trim());
        }
        if let Some(project) = read_variable("OPENAI_PROJECT_ID")? {
            builder = builder.project(project.trim());
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

    /// Returns a model of this endpoint that uses Chat Completions.
    #[must_use]
    pub fn chat_model(&self, name: impl Into<String>) -> ChatCompletions {
        ChatCompletions::new(Arc::clone(&self.0), name.into())
    }

    /// Returns a model of this endpoint that uses the Responses API.
    ///
    /// ```
    /// use tool_openai::OpenAi;
    ///
    /// let openai = OpenAi::builder().api_key("…").build()?;
    /// let model = openai.responses_model("gpt-5-mini").reasoning_summary("auto");
    /// assert_eq!(model.name(), "gpt-5-mini");
    /// # Ok::<_, tool_openai::Error>(())
    /// ```
    #[must_use]
    pub fn responses_model(&self, name: impl Into<String>) -> Responses {
        Responses::new(Arc::clone(&self.0), name.into())
    }
}

/// Shows the base URL, never the key.
impl fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenAi").field(&self.0).finish()
    }
}

/// Reads an environment variable. Returns `None` if it is not set or blank.
fn read_variable(name: &str) -> Result<Option<String>, Error> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.trim().is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => {
            Err(Error::config(format!("the environment variable {name} is not valid Unicode")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn a_base_url_keeps_its_path_and_query() {
        for (query, base_url) in [
            ("", "http://localhost:1/v1"),
            ("", "http://localhost:1/v1/"),
            ("?version=1&secret=x", "http://localhost:1/v1?version=1&secret=x"),
        ] {
            let openai = OpenAi::builder().base_url(base_url).build().unwrap();
            let url = openai.0.url("chat/completions", "m");
            assert_eq!(url.as_str(), format!("http://localhost:1/v1/chat/completions{query}"));
            assert!(!format!("{openai:?}").contains("secret"), "{openai:?}");
        }
    }

    #[test]
    fn rejects_invalid_base_urls() {
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
            assert!(error.kind() == ErrorKind::Config);
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn the_key_is_never_shown() {
        let builder = OpenAi::builder().api_key("sk-secret").base_url("http://localhost/v1");
        assert!(!format!("{builder:?}").contains("sk-secret"));
        let openai = builder.build().unwrap();
        assert!(!format!("{openai:?} {:?}", openai.chat_model("m")).contains("sk-secret"));
    }

    #[test]
    fn rejects_keys_that_cannot_be_sent() {
        for (key, expected) in [
            ("", "the API key is empty; "),
            (" ", "the API key is empty; "),
            ("sk-\nsecret", "the API key contains a "),
        ] {
            let error = OpenAi::builder().api_key(key).base_url("http://localhost/v1").build().unwrap_err();
            assert!(error.kind() == ErrorKind::Config && error.to_string().starts_with(expected), "{error}");
            assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
        }
    }
}
