//! Removes secrets from text that a server sends back.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use regex_lite::{Captures, Regex};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

/// Takes the place of a secret in a URL.
const REDACTED: &str = "[…]";

/// The number of the latest secrets that all clones share.
const MAX_SHARED: usize = 16;

/// The rest of a URL behind its scheme.
static URL: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"://[^\s"'`<>()]*"#).expect("the pattern is valid"));

static QUERY_PAIR: LazyLock<Regex> = LazyLock::new(|| Regex::new("[^?&]+").expect("the pattern is valid"));

/// The secrets that were sent to a server, which must not appear in errors.
///
/// A secret is also found where some or all of its characters are percent-encoded or escaped as in JSON. Redact a text before it
/// is truncated, because a truncated secret is not found.
#[derive(Clone)]
pub struct Redactor {
    mark: &'static str,
    min_bytes: usize,
    secrets: Vec<SecretString>,
    /// The latest secrets that became known after clones were made.
    shared: Arc<Mutex<VecDeque<Vec<SecretString>>>>,
}

impl Redactor {
    /// Creates a redactor that replaces secrets with `mark`. Secrets of fewer bytes than `min_bytes`, which also occur as parts
    /// of ordinary words, are not replaced.
    #[must_use]
    pub fn new(mark: &'static str, min_bytes: usize) -> Self {
        Self { mark, min_bytes: min_bytes.max(1), secrets: Vec::new(), shared: Arc::default() }
    }

    /// Adds a secret. White space around it, which headers do not preserve, is not part of it.
    pub fn add(&mut self, secret: &str) {
        self.secrets.extend(self.forms(secret));
    }

    /// Adds a secret to this redactor and all of its clones, such as a token that is renewed. The sixteen latest are redacted.
    pub fn add_shared(&self, secret: &str) {
        self.add_shared_group([&secret.into()]);
    }

    /// [Adds](Self::add_shared) a secret, the last one, together with its parts.
    pub(super) fn add_shared_group<'a>(&self, secrets: impl IntoIterator<Item = &'a SecretString>) {
        let forms: Vec<_> =
            secrets.into_iter().flat_map(|secret| self.forms(secret.expose_secret())).collect();
        let Some(secret) = forms.last().map(ExposeSecret::expose_secret) else { return };
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is used again is among the latest again.
        shared.retain(|known| known.last().is_none_or(|known| known.expose_secret() != secret));
        shared.push_back(forms);
        if shared.len() > MAX_SHARED {
            shared.pop_front();
        }
    }

    /// Returns a redactor of the same secrets, except those that clones share: it shares those of its own clones.
    #[must_use]
    pub fn separate(&self) -> Self {
        Self { shared: Arc::default(), ..self.clone() }
    }

    /// Adds the value of a header, and the credentials after its scheme, as in `Bearer …`.
    pub fn add_header(&mut self, value: &str) {
        self.add(value);
        if let Some((_scheme, credentials)) = value.trim().split_once(' ') {
            self.add(credentials);
        }
    }

    /// Adds the user info of a URL, also as it is sent in a header, and the values of the query, except a version of the API, which
    /// helps to understand an error.
    pub fn add_url(&mut self, url: &Url) {
        let (user, password) = (url.username(), url.password().unwrap_or_default());
        let sent = [&*Decoded::new(user).bytes, b":", &*Decoded::new(password).bytes].concat();
        let sent = if sent == b":" { String::new() } else { BASE64.encode(sent) };
        [user, password, &sent].iter().for_each(|secret| self.add(secret));
        for pair in url.query().unwrap_or_default().split('&') {
            let (name, value) = pair.split_once('=').unwrap_or(("", pair));
            if name != "api-version" {
                self.add(value);
                self.add(&value.replace('+', " "));
            }
        }
    }

    /// Returns a secret that is long enough as it appears in texts, itself last: a value that is shown as JSON contains it with escapes, to
    /// some servers also of slashes.
    fn forms(&self, secret: &str) -> Vec<SecretString> {
        let secret = secret.trim();
        if secret.len() < self.min_bytes {
            return Vec::new();
        }
        let json = Value::from(secret).to_string();
        let escaped = json.strip_prefix('"').and_then(|json| json.strip_suffix('"')).unwrap_or_default();
        let escapes = [escaped, &escaped.replace('/', "\\/")].map(SecretString::from);
        let escapes = escapes.into_iter().filter(|form| form.expose_secret() != secret);
        escapes.chain([secret.into()]).collect()
    }

    /// Replaces every secret in the text.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        let decoded = Decoded::new(text);
        let find = |secret: &SecretString| decoded.find(text, &Decoded::new(secret.expose_secret()).bytes);
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<Range<usize>> =
            self.secrets.iter().chain(shared.iter().flatten()).flat_map(find).collect();
        found.sort_unstable_by_key(|range| range.start);
        let (mut redacted, mut end) = (String::with_capacity(text.len()), 0);
        for range in found {
            // Secrets can overlap, and one can be a part of another.
            if range.start >= end {
                redacted.push_str(&text[end..range.start]);
                redacted.push_str(self.mark);
            }
            end = end.max(range.end);
        }
        redacted.push_str(&text[end..]);
        redacted
    }

    /// Redacts all strings in the value, including names of members.
    #[must_use]
    pub fn redact_value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => self.redact(&text).into(),
            Value::Array(values) => values.into_iter().map(|value| self.redact_value(value)).collect(),
            Value::Object(members) => members
                .into_iter()
                .map(|(name, value)| (self.redact(&name), self.redact_value(value)))
                .collect(),
            value => value,
        }
    }
}

/// A text with its percent escapes decoded.
struct Decoded {
    bytes: Vec<u8>,
    /// The indices of the bytes that were escaped, so that a long text without escapes takes no more than its length.
    escaped: Vec<usize>,
}

impl Decoded {
    fn new(text: &str) -> Self {
        let (mut bytes, mut escaped) = (Vec::with_capacity(text.len()), Vec::new());
        let mut position = 0;
        while let Some(&byte) = text.as_bytes().get(position) {
            let digits = text.get(position + 1..position + 3).filter(|_| byte == b'%');
            let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
            let decoded = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            if decoded.is_some() {
                escaped.push(bytes.len());
            }
            bytes.push(decoded.unwrap_or(byte));
            position += if decoded.is_some() { 3 } else { 1 };
        }
        Self { bytes, escaped }
    }

    /// Returns where the byte at this index is in the text.
    fn position(&self, index: usize) -> usize {
        index + 2 * self.escaped.partition_point(|escaped| *escaped < index)
    }

    /// Returns where the secret is in the text.
    fn find(&self, text: &str, secret: &[u8]) -> Vec<Range<usize>> {
        let starts = memchr::memmem::find_iter(&self.bytes, secret);
        let ranges = starts.map(|start| self.position(start)..self.position(start + secret.len()));
        // Part of a character is no secret.
        ranges.filter(|range| text.get(range.clone()).is_some()).collect()
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
    // This fails for URLs that cannot have user info.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

/// Replaces user info and the values of queries in all URLs of the text.
#[must_use]
pub fn redact_urls(text: &str) -> String {
    URL.replace_all(text, |url: &Captures<'_>| {
        let (url, fragment) = split_before(&url[0], '#');
        let (url, query) = split_before(url, '?');
        let (authority, path) = split_before(&url["://".len()..], '/');
        let host = match authority.rsplit_once('@') {
            Some((_, host)) => format!("{REDACTED}@{host}"),
            None => authority.to_owned(),
        };
        let query = QUERY_PAIR.replace_all(query, |pair: &Captures<'_>| match pair[0].split_once('=') {
            Some((name, _)) => format!("{name}={REDACTED}"),
            None => REDACTED.to_owned(),
        });
        format!("://{host}{path}{query}{fragment}")
    })
    .into_owned()
}

fn split_before(text: &str, border: char) -> (&str, &str) {
    text.split_at(text.find(border).unwrap_or(text.len()))
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
    fn clones_share_the_latest_of_the_secrets_that_are_added_later() {
        let redactor = Redactor::new("[…]", 6);
        let clone = redactor.clone();
        redactor.add_shared("first/token");
        assert_eq!(clone.redact(r"first/token first\/token"), "[…] […]");
        (0..MAX_SHARED).for_each(|number| redactor.add_shared(&format!("token-{number:02}")));
        assert_eq!(clone.redact("first/token token-00 token-15"), "first/token […] […]");
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

    #[test]
    fn redacts_secrets_that_overlap_as_one() {
        let mut redactor = Redactor::new("[…]", 6);
        for secret in ["secret", "secret-two", "two-three", "a\"b\"c\"d"] {
            redactor.add(secret);
        }
        assert_eq!(redactor.redact("secret-two-three, secret!"), "[…], […]!");
        let shown = serde_json::json!({ "x": "a\"b\"c\"d" }).to_string();
        assert_eq!(redactor.redact(&shown), r#"{"x":"[…]"}"#);
    }

    #[test]
    fn redacts_escaped_secrets() {
        let mut redactor = Redactor::new("[…]", 6);
        redactor.add("sk+1/é=99");
        redactor.add("pass%2Dword");
        redactor.add("%C3%A9%A9%A9");
        redactor.add_header("Token tk-12345");
        redactor.add_url(&"http://user-1:p%40ss@x/?key=a+value".parse().unwrap());
        let table = [
            ("sk%2B1%2F%C3%A9%3D99!", "[…]!"),
            ("sk%2b1/é%3d99!", "[…]!"),
            (r"sk+1\/é=99", "[…]"),
            ("pass-word pass%2dword pass%2Dword", "[…] […] […]"),
            ("Token tk-12345, tk-12345, Token", "[…], […], Token"),
            ("dXNlci0xOnBAc3M= user-1 a value a%20value", "[…] […] […] […]"),
            ("100 % of é%, %4, %zz, ©©", "100 % of é%, %4, %zz, ©©"),
        ];
        for (text, expected) in table {
            assert_eq!(redactor.redact(text), expected);
        }
    }

    #[test]
    fn redacts_parts_of_urls() {
        let table = [
            ("no URL", "no URL"),
            ("https://example.org/a/b#c", "https://example.org/a/b#c"),
            ("see (https://user:p@ss@example.org) now", "see (https://[…]@example.org) now"),
            ("http://x/a?key=b=c&d&e=#f http://y?k=v", "http://x/a?key=[…]&[…]&e=[…]#f http://y?k=[…]"),
        ];
        for (text, expected) in table {
            assert_eq!(redact_urls(text), expected);
        }
    }
}
