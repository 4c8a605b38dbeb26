//! Ids of tool calls.

use std::borrow::Cow;

use tool_http::client::hash_call_id;
use tool_http::random_id;

/// Generates an id for a call that has none. The id is random because the ids of responses may repeat or be missing, too.
pub(crate) fn generate_call_id() -> String {
    random_id("call_")
}

/// Converts an id to the form that Mistral accepts: nine letters and digits, always the same ones for the same id. See
/// <https://docs.mistral.ai/capabilities/function_calling>.
pub(crate) fn nine_alphanumeric(id: &str) -> Cow<'_, str> {
    const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    if id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Cow::Borrowed(id);
    }
    let mut hash = hash_call_id(id);
    let digits = std::iter::repeat_with(|| {
        let digit = ALPHABET[(hash % 62) as usize];
        hash /= 62;
        char::from(digit)
    });
    Cow::Owned(digits.take(9).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_nine_characters_are_stable_and_distinct() {
        let table = [("abcDEF123", "abcDEF123"), ("", "HIQo8RRkb"), ("call_1", "9gD2Dimct")];
        for (id, expected) in table {
            assert_eq!(nine_alphanumeric(id), expected, "{id}");
        }
        let ids: std::collections::HashSet<_> =
            (0..1000).map(|number| nine_alphanumeric(&format!("call_{number}")).into_owned()).collect();
        assert_eq!(ids.len(), 1000);
    }
}
