//! Names of tools in calls.

use std::borrow::Cow;

/// The maximum length of a tool's name: <https://platform.openai.com/docs/api-reference/chat/create>.
pub(crate) const MAX_NAME_CHARS: usize = 64;

/// Returns `true` if OpenAI accepts the name.
pub(crate) fn is_valid_tool_name(name: &str) -> bool {
    (1..=MAX_NAME_CHARS).contains(&name.len()) && name.chars().all(is_allowed)
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// Returns the name of an earlier call in the form to send. Models also call tools that do not exist, by names that no tool
/// can have, and OpenAI and others reject the whole request if the history contains one. Names that a `ToolSet` accepts are
/// not changed.
pub(crate) fn normalize_tool_name(name: &str) -> Cow<'_, str> {
    if name.is_empty() {
        Cow::Borrowed("_")
    } else if is_valid_tool_name(name) {
        Cow::Borrowed(name)
    } else {
        name.chars().take(MAX_NAME_CHARS).map(|c| if is_allowed(c) { c } else { '_' }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalized_names_have_only_letters_digits_and_dashes() {
        let long = "a".repeat(65);
        let table = [
            ("get-weather_2", "get-weather_2"),
            ("browser.tabs.open", "browser_tabs_open"),
            ("sum(a=1)", "sum_a_1_"),
            ("größe", "gr__e"),
            ("", "_"),
            (&long, &long[..64]),
        ];
        for (name, expected) in table {
            assert_eq!(normalize_tool_name(name), expected, "{name}");
        }
    }
}
