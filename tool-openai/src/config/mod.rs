//! Where the endpoint is, and how it is reached.

mod builder;

use std::env::VarError;
use std::fmt;
use std::sync::Arc;

pub use self::builder::OpenAiBuilder;
use crate::client::Client;
use crate::{ChatCompletions, Error, Responses};

/// The environment variable with the key.
const KEY_VARIABLE: &str = "OPENAI_API_KEY";

/// The environment variable with the base URL.
const BASE_URL_VARIABLE: &str = "OPENAI_BASE_URL";

/// An OpenAI-compatible endpoint. Cloning shares its connections.
#[derive(Clone)]
pub struct OpenAi(Arc<Client>);

impl OpenAi {
    /// The endpoint that the environment names: the key in `OPENAI_API_KEY`, the base URL in
    /// `OPENAI_BASE_URL`. Without a base URL it is OpenAI's own; with one, the key may be missing, as
    /// many local servers want none. The organisation and the project, where a key has several, are taken from
    /// `OPENAI_ORG_ID` and `OPENAI_PROJECT_ID`. All else is set by [`builder`](Self::builder).
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
        if let Some(organization) = variable("OPENAI_ORG_ID")? {
            builder = builder.organization(organization.trim());
        }
        if let Some(project) = variable("OPENAI_PROJECT_ID")? {
            builder = builder.project(project.trim());
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

/// A variable of the environment that is not blank.
fn variable(name: &str) -> Result<Option<String>, Error> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.trim().is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Error::config(format!("{name} holds what is no text"))),
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
