//! What the APIs of models accept of tools and of earlier calls.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tool_core::model::ToolDefinition;

/// Returns why an API rejects a tool, and with it the whole request. A name has at most `max_name_chars`.
#[must_use]
pub fn find_tool_violation(definition: &ToolDefinition, max_name_chars: usize) -> Option<String> {
    let name = definition.name();
    if !is_valid_tool_name(name, max_name_chars) {
        let excerpt: String = name.chars().take(max_name_chars).collect();
        return Some(format!(
            "invalid tool name `{excerpt}`; use 1 to {max_name_chars} letters, digits, `_` and `-`"
        ));
    }
    let is_object = definition.parameters().get("type").and_then(Value::as_str) == Some("object");
    (!is_object).then(|| format!("the parameters of the tool `{name}` must be an object"))
}

fn is_valid_tool_name(name: &str, max_chars: usize) -> bool {
    (1..=max_chars).contains(&name.len()) && name.chars().all(is_name_char)
}

/// Returns `true` if APIs accept a character in names of tools.
#[must_use]
pub fn is_name_char(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}

/// Returns the name of an earlier call in a form that an API accepts, with at most `max_chars`. Models also call tools that do not exist,
/// by names that no tool can have, and APIs reject the whole request if the history contains one. Names that a `ToolSet` accepts are
/// not changed.
#[must_use]
pub fn normalize_tool_name(name: &str, max_chars: usize) -> Cow<'_, str> {
    if name.is_empty() {
        Cow::Borrowed("_")
    } else if is_valid_tool_name(name, max_chars) {
        Cow::Borrowed(name)
    } else {
        name.chars().take(max_chars).map(|c| if is_name_char(c) { c } else { '_' }).collect()
    }
}

/// Returns the arguments of an earlier call in the form to send: always a JSON object, because servers that parse it reject the whole
/// request otherwise.
#[must_use]
pub fn normalize_arguments(text: &str) -> Cow<'_, str> {
    match text.trim_ascii() {
        "" | "null" => Cow::Borrowed("{}"),
        _ if is_object(text) => Cow::Borrowed(text),
        _ => Cow::Owned(json!({ "INVALID_JSON": text }).to_string()),
    }
}

/// Returns `true` if a text is a JSON object.
#[must_use]
pub fn is_object(json: &str) -> bool {
    json.trim_ascii_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(json).is_ok()
}

/// Returns a hash of the id of a call, for servers that accept no other ids.
#[must_use]
pub fn hash_call_id(id: &str) -> u64 {
    // FNV-1a, because std's hashes may change between versions, and a stored run must send the same ids.
    id.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalized_arguments_are_always_an_object() {
        let table = [
            (r#"{"a": 1.10}"#, r#"{"a": 1.10}"#),
            ("", "{}"),
            (" null ", "{}"),
            ("{\"a\": ", r#"{"INVALID_JSON":"{\"a\": "}"#),
            ("[1]", r#"{"INVALID_JSON":"[1]"}"#),
        ];
        for (text, expected) in table {
            assert_eq!(normalize_arguments(text), expected, "{text}");
        }
    }

    #[test]
    fn normalized_names_have_only_letters_digits_and_dashes() {
        let long = "a".repeat(65);
        let table = [
            ("get-weather_2", "get-weather_2"),
            ("browser.tabs.open", "browser_tabs_open"),
            ("sum(a=1)", "sum_a_1_"),
            ("clock.now é", "clock_now__"),
            ("größe", "gr__e"),
            ("", "_"),
            (&long, &long[..64]),
        ];
        for (name, expected) in table {
            assert_eq!(normalize_tool_name(name, 64), expected, "{name}");
        }
    }
}
