//! What a server is told and nobody else may read.

/// How long a value is that may be taken for a secret where it stands in a text, in bytes: shorter ones are parts of
/// ordinary words.
const SHORTEST: usize = 6;

/// The values that are taken out of what a server says.
#[derive(Clone, Default)]
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    pub(super) fn add(&mut self, value: &str) {
        if value.len() >= SHORTEST {
            self.0.push(value.to_owned());
        }
    }

    /// The text without what is secret in it.
    pub(super) fn hide(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "[…]"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_taken_out() {
        let mut secrets = Secrets::default();
        secrets.add("a");
        secrets.add("sk-123456");
        assert_eq!(secrets.hide("a key: sk-123456, sk-123456!"), "a key: […], […]!");
    }
}
