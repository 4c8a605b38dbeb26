//! Parses calls from data.

use std::collections::HashSet;

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::detector::{ARGUMENT_KEYS, CALL_KEYS, NAME_KEYS, Nesting};
use crate::arguments::{Members, duplicate_member, to_json};

/// The maximum nesting depth of a call in lists and members.
const MAX_DEPTH: usize = 4;

/// A call in a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct ParsedCall {
    pub(in super::super) name: String,
    /// The text of a JSON object, or of another value that the model wrote instead.
    pub(in super::super) arguments: String,
}

/// The location of data in a reply.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Location {
    /// In `<tool_call>` tags, where anything but calls is an error.
    InTags,
    /// In the text, where only objects that name existing tools are calls.
    InText,
}

/// The reason why data is not a list of calls.
#[derive(Debug, PartialEq)]
pub(super) enum CallsError {
    /// The data is something else.
    NotACall,
    /// A call cannot be parsed, for this reason, written for the model.
    Malformed(String),
}

/// Parses calls from a text of one or more values.
pub(super) fn parse_calls(
    text: &str,
    location: Location,
    tools: &HashSet<String>,
) -> Result<Vec<ParsedCall>, CallsError> {
    let mut calls = Vec::new();
    let mut rest = skip_separators(text);
    while !rest.is_empty() {
        let (value, tail) = split_value(rest)?;
        let repaired;
        let json = if serde_json::from_str::<IgnoredAny>(value).is_ok() {
            value
        } else {
            repaired = to_json(value).map_err(CallsError::Malformed)?;
            &repaired
        };
        let parser = CallParser { location, tools };
        parser.parse_value(json, 0, &mut calls)?;
        rest = skip_separators(tail);
    }
    if calls.is_empty() { Err(malformed("the call is empty")) } else { Ok(calls) }
}

/// Skips whitespace, commas, semicolons and fences around calls.
fn skip_separators(text: &str) -> &str {
    let mut text = text;
    loop {
        text =
            text.trim_start_matches(|character: char| character.is_whitespace() || ",;".contains(character));
        match text.strip_prefix("```") {
            Some(tail) => {
                text =
                    tail.trim_start_matches(|character: char| character.is_alphabetic() || character == '_')
            }
            None => return text,
        }
    }
}

/// Splits a text after its first object or list.
fn split_value(text: &str) -> Result<(&str, &str), CallsError> {
    if !text.starts_with(['{', '[']) {
        return Err(malformed("expected only JSON objects with `name` and `arguments`"));
    }
    let mut nesting = Nesting::default();
    let end = text.char_indices().find_map(|(index, character)| nesting.push(character).then_some(index + 1));
    Ok(text.split_at_checked(end.unwrap_or(text.len())).unwrap_or((text, "")))
}

fn malformed(reason: &str) -> CallsError {
    CallsError::Malformed(reason.to_owned())
}

struct CallParser<'a> {
    location: Location,
    tools: &'a HashSet<String>,
}

impl CallParser<'_> {
    /// Parses a call, or the calls that a value contains.
    fn parse_value(&self, json: &str, depth: usize, calls: &mut Vec<ParsedCall>) -> Result<(), CallsError> {
        let json = json.trim_ascii();
        if depth < MAX_DEPTH
            && let Ok(list) = serde_json::from_str::<Vec<&RawValue>>(json)
        {
            return list.into_iter().try_for_each(|one| self.parse_value(one.get(), depth + 1, calls));
        }
        let Ok(Members(members)) = serde_json::from_str(json) else {
            return Err(self.reject("expected an object with `name` and `arguments`"));
        };
        let mut names = HashSet::new();
        if let Some((name, _)) = members.iter().find(|(name, _)| !names.insert(name)) {
            return Err(self.reject(&duplicate_member(name)));
        }
        let get = |wanted: &str| members.iter().find(|(name, _)| name == wanted).map(|(_, value)| *value);
        let inner = CALL_KEYS.into_iter().filter_map(get).find(|value| value.starts_with(['{', '[']));
        if let Some(inner) = inner.filter(|_| depth < MAX_DEPTH) {
            return self.parse_value(inner, depth + 1, calls);
        }
        calls.push(self.parse_call(&get)?);
        Ok(())
    }

    fn parse_call<'j>(&self, get: &dyn Fn(&str) -> Option<&'j str>) -> Result<ParsedCall, CallsError> {
        let names = NAME_KEYS.into_iter().filter_map(|member| {
            let name = serde_json::from_str::<String>(get(member)?).ok()?;
            Some((member, name))
        });
        let mut names: Vec<_> = names.collect();
        let known = names.iter().position(|(_, name)| self.tools.contains(name));
        if names.is_empty() || self.location == Location::InText && known.is_none() {
            return Err(self.reject("missing `name`, the tool's name as a string"));
        }
        let (member, name) = names.swap_remove(known.unwrap_or(0));
        let arguments = ARGUMENT_KEYS.into_iter().find_map(get);
        if self.location == Location::InText {
            // Other data can have a `name` too, and descriptions of tools have `parameters`.
            let is_other = arguments.is_none() && member == "name" || get("description").is_some();
            if is_other {
                return Err(CallsError::NotACall);
            }
        }
        Ok(ParsedCall { name, arguments: arguments_object(arguments.unwrap_or("{}")) })
    }

    fn reject(&self, reason: &str) -> CallsError {
        match self.location {
            Location::InTags => malformed(reason),
            Location::InText => CallsError::NotACall,
        }
    }
}

/// Returns the JSON object of a call's arguments: parses a string of JSON, and returns `{}` for `null` or an empty string.
/// Any other value is unchanged, for the tool to reject.
fn arguments_object(arguments: &str) -> String {
    if arguments == "null" {
        return "{}".into();
    }
    let Ok(text) = serde_json::from_str::<String>(arguments) else { return arguments.into() };
    if text.trim().is_empty() {
        return "{}".into();
    }
    match to_json(&text) {
        Ok(_) if serde_json::from_str::<IgnoredAny>(&text).is_ok() => text,
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

    fn parse(location: Location, text: &str) -> Result<Vec<(String, String)>, CallsError> {
        let calls = parse_calls(text, location, &tools())?;
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
            (r#"{"tool_name": "sum", "args": {"a": 1}}"#, &sum),
            (r#"{"function": "sum", "input": {"a": 1}}"#, &sum),
            (r#"{"function": {"name": "sum", "arguments": {"a": 1}}}"#, &sum),
            (
                r#"{"id": "c1", "type": "function", "function": {"name": "sum", "arguments": "{\"a\": 1}"}}"#,
                &sum,
            ),
            (
                r#"{"tool_calls": [{"function": {"name": "sum", "arguments": {"a": 1}}}, {"tool": "now"}]}"#,
                &both,
            ),
            (r#"{"tool_call": {"name": "sum", "arguments": {"a": 1}}}"#, &sum),
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
            for location in [Location::InTags, Location::InText] {
                let calls = parse(location, text).unwrap();
                let calls: Vec<_> = calls.iter().map(|(name, arguments)| (&**name, &**arguments)).collect();
                assert_eq!(calls, *expected, "{text}");
            }
        }
    }

    #[test]
    fn rejects_anything_but_calls_in_tags() {
        let call = |name: &str| Ok(vec![(name.to_owned(), "{}".to_owned())]);
        let malformed = |reason: &str| Err(CallsError::Malformed(reason.to_owned()));
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
            assert_eq!(parse(Location::InTags, text), expected, "{text}");
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
            r#"[1]"#,
            r#"{"name": {"first": "now"}, "arguments": {}}"#,
        ] {
            assert_eq!(parse(Location::InText, text), Err(CallsError::NotACall), "{text}");
        }
    }
}
