//! Removes secrets from text that a server sends back.

/// The shortest value that is redacted, in bytes. Shorter values also occur as parts of ordinary words.
const MIN_SECRET_BYTES: usize = 6;

/// The secrets that were sent to a server, which must not appear in errors.
#[derive(Clone, Default)]
pub(super) struct Redactor(Vec<String>);

impl Redactor {
    pub(super) fn add(&mut self, secret: &str) {
        if secret.len() >= MIN_SECRET_BYTES {
            self.0.push(secret.to_owned());
        }
    }

    /// Replaces every secret in the text with `[…]`.
    pub(super) fn redact(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "[…]"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redacts_values_that_are_long_enough() {
        let mut redactor = Redactor::default();
        redactor.add("a");
        redactor.add("sk-123456");
        assert_eq!(redactor.redact("a key: sk-123456, sk-123456!"), "a key: […], […]!");
    }
}
