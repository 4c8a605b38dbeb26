//! The address of an endpoint and how to connect to it.

mod builder;

use std::env::VarError;
use std::fmt;
use std::sync::Arc;

pub use self::builder::AnthropicBuilder;
use crate::client::Client;
use crate::{Error, Messages};

/// The environment variable that holds the key.
const API_KEY_VARIABLE: &str = "ANTHROPIC_API_KEY";

/// The environment variable that holds the base URL.
const BASE_URL_VARIABLE: &str = "ANTHROPIC_BASE_URL";

/// A server with Anthropic's Messages API. Clones share its connections.
#[derive(Clone)]
pub struct Anthropic(Arc<Client>);

impl Anthropic {
    /// Creates the endpoint that the environment describes: the key in `ANTHROPIC_API_KEY`, the base URL in `ANTHROPIC_BASE_URL`.
    /// Without a base URL, it is Anthropic's own; with one, the key is optional, because many local servers need none. Use
    /// [`builder`](Self::builder) to configure anything else.
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
        builder.build()
    }

    /// Returns a builder for an endpoint.
    ///
    /// ```
    /// use tool_anthropic::{Anthropic, Endpoint};
    ///
    /// let local = Anthropic::builder().endpoint(Endpoint::llama_cpp()).build()?;
    /// # Ok::<_, tool_anthropic::Error>(())
    /// ```
    pub fn builder() -> AnthropicBuilder {
        AnthropicBuilder::default()
    }

    /// Returns a model of this endpoint, such as `claude-sonnet-5-5`.
    pub fn chat_model(&self, name: impl Into<String>) -> Messages {
        Messages::new(Arc::clone(&self.0), name.into())
    }
}

/// Shows the base URL, never the key.
impl fmt::Debug for Anthropic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Anthropic").field(&self.0).finish()
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
    use crate::{Endpoint, ErrorKind};

    #[test]
    fn the_version_is_appended_once() {
        for base_url in ["http://localhost:1", "http://localhost:1/", "http://localhost:1/v1/"] {
            let anthropic = Anthropic::builder().base_url(base_url).build().unwrap();
            assert_eq!(anthropic.0.url("messages").as_str(), "http://localhost:1/v1/messages");
        }
        let endpoint = Anthropic::builder().endpoint(Endpoint::deepseek()).api_key("k").build().unwrap();
        assert_eq!(endpoint.0.url("messages").as_str(), "https://api.deepseek.com/anthropic/v1/messages");
    }

    #[test]
    fn rejects_invalid_settings_without_showing_secrets() {
        let builder = || Anthropic::builder().base_url("http://localhost");
        let table = [
            (
                builder().base_url("http://user:secret@host"),
                "the base URL contains a user name or password; set the key with `api_key`",
            ),
            (
                builder().base_url("http://localhost/v1/messages"),
                "the base URL must not contain `/messages`; it is appended",
            ),
            (builder().api_key(" "), "the API key is empty; set one, or none if the server needs none"),
            (
                builder().api_key("sk-\nsecret"),
                "the API key contains a character that is not allowed in headers, such as a line break; trim it",
            ),
            (builder().max_concurrent_requests(0), "`max_concurrent_requests` must be at least 1"),
            (
                Anthropic::builder(),
                "no API key; set one with `api_key`, or read it from ANTHROPIC_API_KEY with `api_key_from_env`",
            ),
            (
                Anthropic::builder().endpoint(Endpoint::compatible()),
                "the endpoint has no base URL; set one with `base_url`",
            ),
        ];
        for (builder, expected) in table {
            let error = builder.build().unwrap_err();
            assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Config, expected));
        }
    }

    #[test]
    fn the_key_is_never_shown() {
        let builder = Anthropic::builder().api_key("sk-ant-secret").base_url("http://localhost/");
        assert!(!format!("{builder:?}").contains("secret"));
        let anthropic = builder.build().unwrap();
        assert!(!format!("{anthropic:?} {:?}", anthropic.chat_model("m")).contains("secret"));
    }
}
