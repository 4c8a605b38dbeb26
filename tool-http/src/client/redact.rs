//! Removes secrets from text that a server sends back.

use std::fmt;

use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};

/// The secrets that were sent to a server, which must not appear in errors.
///
/// Redact a text before it is truncated: part of a secret would not be found.
#[derive(Clone)]
pub struct Redactor {
    mark: &'static str,
    min_bytes: usize,
    /// The longest first, because one can contain another.
    secrets: Vec<SecretString>,
}

impl Redactor {
    /// Creates a redactor that replaces secrets with `mark`. Secrets of fewer bytes than `min_bytes`, which also occur as parts
    /// of ordinary words, are not replaced.
    #[must_use]
    pub fn new(mark: &'static str, min_bytes: usize) -> Self {
        Self { mark, min_bytes: min_bytes.max(1), secrets: Vec::new() }
    }

    /// Adds a secret.
    pub fn add(&mut self, secret: &str) {
        if secret.len() >= self.min_bytes {
            let longer = |other: &SecretString| other.expose_secret().len() >= secret.len();
            self.secrets.insert(self.secrets.partition_point(longer), secret.into());
        }
    }

    /// Replaces every secret in the text.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        let secrets = self.secrets.iter().map(ExposeSecret::expose_secret);
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret, self.mark))
    }
}

/// Shows no secret.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").finish_non_exhaustive()
    }
}

/// Returns a URL without user name, password, query and fragment, which may contain secrets.
#[must_use]
pub fn redact_url(url: &Url) -> String {
    let mut url = url.clone();
    // Fails for URLs that can have neither.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redacts_values_that_are_long_enough() {
        let mut redactor = Redactor::new("[…]", 6);
        redactor.add("a");
        redactor.add("sk-123456");
        assert_eq!(redactor.redact("a key: sk-123456, sk-123456!"), "a key: […], […]!");
        assert!(!format!("{redactor:?}").contains("sk-"));
    }

    #[test]
    fn redacts_the_longest_of_several() {
        for secrets in [["sk-123456", "sk-123456-789"], ["sk-123456-789", "sk-123456"]] {
            let mut redactor = Redactor::new("[key]", 1);
            secrets.iter().for_each(|secret| redactor.add(secret));
            assert_eq!(redactor.redact("sk-123456-789 sk-123456"), "[key] [key]");
        }
    }

    #[test]
    fn an_empty_secret_is_ignored() {
        let mut redactor = Redactor::new("[key]", 0);
        redactor.add("");
        assert_eq!(redactor.redact("text"), "text");
    }

    #[test]
    fn urls_are_shown_without_secrets() {
        let url = "https://user:secret@example.org:8443/mcp?key=secret#secret".parse().unwrap();
        assert_eq!(redact_url(&url), "https://example.org:8443/mcp");
    }
}
