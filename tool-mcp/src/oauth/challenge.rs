//! The challenge of a server that rejects a request (RFC 6750, RFC 9728).

use reqwest::Url;
use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};
use serde::{Deserialize, Serialize};

/// The longest header that is parsed, in bytes.
const MAX_BYTES: usize = 8 << 10;

/// The parameters of the challenges of a response. Of several, the first one counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Challenge {
    /// The URL of the metadata of the resource.
    pub(super) resource_metadata: Option<String>,
    scope: Option<String>,
    error: Option<String>,
}

impl Challenge {
    /// Returns the challenge of a response, which is empty if there is none.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        let values = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        Self::parse(&values.collect::<Vec<_>>().join(", "))
    }

    /// Returns the challenge to be stored: the metadata of another origin may be those of an attacker, who was there only for a moment.
    pub(super) fn to_store(&self, server: &Url) -> Self {
        let is_own = |url: &String| Url::parse(url).is_ok_and(|url| url.origin() == server.origin());
        Self { resource_metadata: self.resource_metadata.clone().filter(is_own), ..self.clone() }
    }

    /// Returns the scopes that the request needs.
    pub(super) fn scopes(&self) -> Option<Vec<String>> {
        Some(self.scope.as_ref()?.split_whitespace().map(str::to_owned).collect())
    }

    pub(crate) fn is_insufficient_scope(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }

    fn parse(header: &str) -> Self {
        let mut challenge = Self::default();
        for item in split_list(header.get(..MAX_BYTES).unwrap_or(header)) {
            let Some((head, value)) = item.split_once('=') else { continue };
            // The first parameter of a challenge follows its scheme.
            let name = head.split_whitespace().next_back().unwrap_or_default().to_ascii_lowercase();
            let place = match &*name {
                "resource_metadata" => &mut challenge.resource_metadata,
                "scope" => &mut challenge.scope,
                "error" => &mut challenge.error,
                _ => continue,
            };
            place.get_or_insert_with(|| unquote(value));
        }
        challenge
    }
}

/// Splits a list at the commas outside of quotes.
fn split_list(text: &str) -> Vec<&str> {
    let (mut items, mut start, mut is_quoted, mut is_escaped) = (Vec::new(), 0, false, false);
    for (index, character) in text.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => {
                items.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    items.push(&text[start..]);
    items.into_iter().map(str::trim).filter(|item| !item.is_empty()).collect()
}

fn unquote(value: &str) -> String {
    let value = value.trim();
    let Some(quoted) = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')) else {
        return value.to_owned();
    };
    let mut characters = quoted.chars();
    let next = || match characters.next()? {
        '\\' => characters.next(),
        character => Some(character),
    };
    std::iter::from_fn(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_first_of_each_parameter() {
        let metadata = "https://a.example/x?y=1,2";
        let table = [
            ("", None, None, false),
            ("Bearer", None, None, false),
            ("Basic realm=\"a, scope=x\"", None, None, false),
            ("Bearer resource_metadata=\"https://a.example/x?y=1,2\"", Some(metadata), None, false),
            (
                "Basic realm=x, bearer realm=\"a \\\"b\\\"\", Scope=\"a  b\", error=insufficient_scope, \
                 resource_metadata = \"https://a.example/x?y=1,2\", DPoP scope=\"c\", Bearer scope=\"d\"",
                Some(metadata),
                Some("a b"),
                true,
            ),
        ];
        for (header, metadata, scope, is_insufficient) in table {
            let challenge = Challenge::parse(header);
            let scopes = challenge.scopes().map(|scopes| scopes.join(" "));
            let found = (challenge.resource_metadata.as_deref(), scopes.as_deref());
            assert_eq!(found, (metadata, scope), "{header}");
            assert_eq!(challenge.is_insufficient_scope(), is_insufficient, "{header}");
        }
    }
}
