//! Parses calls from data.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::nesting::Nesting;
use crate::arguments::{Members, duplicate_member, to_json};

/// The members that contain the name of a tool.
const NAME_KEYS: [&str; 2] = ["name", "tool"];

/// The members that contain the arguments of a call.
const ARGUMENT_KEYS: [&str; 2] = ["arguments", "parameters"];

/// A call in a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct ParsedCall {
    pub(in super::super) name: String,
    /// The text of a JSON object, or of another value that the model wrote instead.
    pub(in super::super) arguments: String,
}

/// Parses calls from a text of one or more values. Outside of tags, only objects that name existing tools are calls. The error is
/// the reason, written for the model.
pub(super) fn parse_calls(
    text: &str,
    is_in_tags: bool,
    tools: &HashSet<String>,
) -> Result<Vec<ParsedCall>, String> {
    let mut calls = Vec::new();
    let mut rest = skip_separators(text);
    while !rest.is_empty() {
        let (value, tail) = split_value(rest)?;
        let json = match serde_json::from_str::<IgnoredAny>(value) {
            Ok(_) => Cow::Borrowed(value),
            Err(_) => to_json(value)?.into(),
        };
        match serde_json::from_str::<Vec<&RawValue>>(&json) {
            Ok(list) => {
                for call in list {
                    calls.push(parse_call(call.get(), is_in_tags, tools)?);
                }
            }
            Err(_) => calls.push(parse_call(&json, is_in_tags, tools)?),
        }
        rest = skip_separators(tail);
    }
    if calls.is_empty() { Err("the call is empty".into()) } else { Ok(calls) }
}

/// Returns `true` if data outside of tags is meant as a call, but is not valid JSON: it starts like a call, names a tool and has
/// arguments.
pub(super) fn is_call_like(text: &str, tools: &HashSet<String>) -> bool {
    let has = |word: &str| text.contains(&format!("\"{word}\"")) || text.contains(&format!("'{word}'"));
    let first = text.split(['"', '\'']).nth(1).unwrap_or_default();
    [NAME_KEYS, ARGUMENT_KEYS].as_flattened().contains(&first)
        && ARGUMENT_KEYS.into_iter().any(has)
        && tools.iter().any(|name| has(name))
        && serde_json::from_str::<IgnoredAny>(text).is_err()
}

/// Skips whitespace, commas, semicolons and fences around calls.
fn skip_separators(mut text: &str) -> &str {
    loop {
        text = text.trim_start_matches([' ', '\t', '\r', '\n', ',', ';']);
        let Some(fenced) = text.strip_prefix("```") else { return text };
        text = fenced.trim_start_matches(|character: char| character.is_alphabetic() || character == '_');
    }
}

/// Splits a text after its first object or list.
fn split_value(text: &str) -> Result<(&str, &str), String> {
    if !text.starts_with(['{', '[']) {
        return Err("expected only JSON objects with `name` and `arguments`".into());
    }
    let mut nesting = Nesting::default();
    let end = text.char_indices().find_map(|(index, character)| nesting.push(character).then_some(index + 1));
    Ok(text.split_at_checked(end.unwrap_or(text.len())).unwrap_or((text, "")))
}

fn parse_call(json: &str, is_in_tags: bool, tools: &HashSet<String>) -> Result<ParsedCall, String> {
    let Ok(Members(members)) = serde_json::from_str(json) else {
        return Err("expected an object with `name` and `arguments`".into());
    };
    let mut names = HashSet::new();
    if let Some((name, _)) = members.iter().find(|(name, _)| !names.insert(name)) {
        return Err(duplicate_member(name));
    }
    let get = |wanted: &str| members.iter().find(|(name, _)| name == wanted).map(|(_, value)| *value);
    let name = |key| Some((key, serde_json::from_str::<String>(get(key)?).ok()?));
    let mut names: Vec<_> = NAME_KEYS.into_iter().filter_map(name).collect();
    let known = names.iter().position(|(_, name)| tools.contains(name));
    let Some(index) = known.or((is_in_tags && !names.is_empty()).then_some(0)) else {
        return Err("missing `name`, the tool's name as a string".into());
    };
    let (key, name) = names.swap_remove(index);
    let arguments = ARGUMENT_KEYS.into_iter().find_map(get);
    // Other data can have a `name` too, and descriptions of tools have `parameters`.
    let can_be_other = arguments.is_none() && key == "name" || get("description").is_some();
    if !is_in_tags && can_be_other {
        return Err("expected `arguments` and no `description`".into());
    }
    Ok(ParsedCall { name, arguments: decode_arguments(arguments.unwrap_or("{}")) })
}

/// Decodes arguments that are JSON in a string, and returns `{}` for `null` or an empty string. Any other value is unchanged, for
/// the tool to reject.
fn decode_arguments(arguments: &str) -> String {
    let Ok(text) = serde_json::from_str::<Option<String>>(arguments) else { return arguments.into() };
    let text = text.unwrap_or_default();
    match to_json(&text) {
        _ if text.trim().is_empty() => "{}".into(),
        Ok(json) if json.starts_with('{') => json,
        _ => arguments.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> HashSet<String> {
        ["sum", "now"].map(String::from).into()
    }

    fn parse(is_in_tags: bool, text: &str) -> Result<Vec<(String, String)>, String> {
        let calls = parse_calls(text, is_in_tags, &tools())?;
        Ok(calls.into_iter().map(|call| (call.name, call.arguments)).collect())
    }

    #[test]
    fn parses_every_form_of_a_call() {
        let sum = [("sum", r#"{"a": 1}"#)];
        let empty = [("now", "{}")];
        let both = [("sum", r#"{"a": 1}"#), ("now", "{}")];
        let table: &[(&str, &[(&str, &str)])] = &[
            (r#"{"name": "sum", "arguments": {"a": 1}}"#, &sum),
            (r#"{"arguments": {"a": 1}, "name": "sum"}"#, &sum),
            (r#"{"tool": "sum", "parameters": {"a": 1}}"#, &sum),
            (r#"{"name": "x", "tool": "sum", "arguments": {"a": 1}}"#, &sum),
            (r#"{"name": "sum", "reason": "{", "arguments": "{\"a\": 1}"}"#, &sum),
            (r#"{"name": "sum", "arguments": "{'a': 1}"}"#, &sum),
            ("{'name': 'sum', 'arguments': {'a': 1,},}", &sum),
            (r#"[{"name": "sum", "arguments": {"a": 1}}, {"tool": "now"}]"#, &both),
            (r#"{"name": "sum", "arguments": {"a": 1}}{"tool": "now"}"#, &both),
            ("{\"name\": \"sum\", \"arguments\": {\"a\": 1}},\n{\"tool\": \"now\"};", &both),
            (r#"{"tool": "now"}"#, &empty),
            (r#"{"name": "now", "arguments": null}"#, &empty),
            (r#"{"name": "now", "arguments": ""}"#, &empty),
            // The tool rejects these with a helpful error.
            (r#"{"name": "sum", "arguments": "Paris"}"#, &[("sum", r#""Paris""#)]),
            (r#"{"name": "sum", "arguments": [1]}"#, &[("sum", "[1]")]),
        ];
        for (text, expected) in table {
            for is_in_tags in [true, false] {
                let calls = parse(is_in_tags, text).unwrap();
                let calls: Vec<_> = calls.iter().map(|(name, arguments)| (&**name, &**arguments)).collect();
                assert_eq!(calls, *expected, "{text}");
            }
        }
    }

    #[test]
    fn rejects_anything_but_calls_in_tags() {
        let call = |name: &str| Ok(vec![(name.to_owned(), "{}".to_owned())]);
        let malformed = |reason: &str| Err(reason.to_owned());
        let table = [
            (r#"{"name": "now"}"#, call("now")),
            (r#"{"name": "unknown", "arguments": {}}"#, call("unknown")),
            (r#"{"name": "now", "description": "x"}"#, call("now")),
            ("```json\n{\"name\": \"now\"}\n```", call("now")),
            ("", malformed("the call is empty")),
            ("[]", malformed("the call is empty")),
            ("now()", malformed("expected only JSON objects with `name` and `arguments`")),
            (r#"{"name": "now"}}"#, malformed("expected only JSON objects with `name` and `arguments`")),
            (r#"{"arguments": {}}"#, malformed("missing `name`, the tool's name as a string")),
            (
                r#"{"name": "sum", "arguments": {"a": 1}, "n\u0061me": "now"}"#,
                malformed("`name` is given twice"),
            ),
            (r#"{"name": 1}"#, malformed("missing `name`, the tool's name as a string")),
            ("[1]", malformed("expected an object with `name` and `arguments`")),
            (r#"{"name": "now""#, malformed("expected `,` or `}` at line 1, column 15, found the end")),
        ];
        for (text, expected) in table {
            assert_eq!(parse(true, text), expected, "{text}");
        }
    }

    #[test]
    fn ignores_data_that_is_not_a_call_to_a_tool() {
        for text in [
            r#"{"name": "unknown", "arguments": {}}"#,
            r#"{"name": "now"}"#,
            r#"{"name": "sum", "description": "Sums", "parameters": {"type": "object"}}"#,
            r#"{"type": "function", "function": {"name": "sum", "description": "Sums", "parameters": {}}}"#,
            r#"[{"tool": "now"}, {"name": "Ada"}]"#,
            r#"{"tool_calls": [{"function": {"name": "sum", "arguments": {"a": 1}}}]}"#,
            r#"[[{"name": "sum", "arguments": {"a": 1}}]]"#,
            r#"[1]"#,
            r#"{"name": {"first": "now"}, "arguments": {}}"#,
        ] {
            assert!(parse(false, text).is_err() && !is_call_like(text, &tools()), "{text}");
        }
    }
}
