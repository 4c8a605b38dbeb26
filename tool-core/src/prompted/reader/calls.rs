//! What data says, if it is calls.

use std::collections::HashSet;

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::brackets::{ARGUMENTS, Brackets, NAMES, WHOLE_CALLS};
use super::lenient::json_of;
use crate::arguments::Members;

/// How deep a call may stand in lists and members.
const DEEPEST: usize = 4;

/// A call as the model wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct WrittenCall {
    pub(in super::super) name: String,
    /// The text of a JSON object, or of what was given in its place.
    pub(in super::super) arguments: String,
}

/// Where data stands.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Stands {
    /// In `<tool_call>` tags: it is calls, or they are broken.
    InTags,
    /// Anywhere else: it is calls only if it names tools that there are.
    Anywhere,
}

/// Why data is no calls.
#[derive(Debug, PartialEq)]
pub(super) enum NoCalls {
    /// It is something else.
    OtherData,
    /// It cannot be read: why, in words for the model.
    Broken(String),
}

/// The calls that a text holds, which is one value or several.
pub(super) fn read(text: &str, stands: Stands, tools: &HashSet<String>) -> Result<Vec<WrittenCall>, NoCalls> {
    let mut calls = Vec::new();
    let mut rest = without_noise(text);
    while !rest.is_empty() {
        let (value, behind) = split(rest)?;
        let mended;
        let json = if serde_json::from_str::<IgnoredAny>(value).is_ok() {
            value
        } else {
            mended = json_of(value).map_err(NoCalls::Broken)?;
            &mended
        };
        let reader = CallReader { stands, tools };
        reader.value(json, 0, &mut calls)?;
        rest = without_noise(behind);
    }
    if calls.is_empty() { Err(broken("a call is missing: there is nothing in it")) } else { Ok(calls) }
}

/// The text without what may stand around and between calls: blanks, commas, the marks of a fence.
fn without_noise(text: &str) -> &str {
    let mut text = text;
    loop {
        text =
            text.trim_start_matches(|character: char| character.is_whitespace() || ",;".contains(character));
        match text.strip_prefix("```") {
            Some(behind) => {
                text =
                    behind.trim_start_matches(|character: char| character.is_alphabetic() || character == '_')
            }
            None => return text,
        }
    }
}

/// The object or list at the beginning, and what is behind it.
fn split(text: &str) -> Result<(&str, &str), NoCalls> {
    if !text.starts_with(['{', '[']) {
        return Err(broken("a JSON object with `name` and `arguments` is expected, and nothing else"));
    }
    let mut brackets = Brackets::default();
    let end = text.char_indices().find_map(|(at, character)| brackets.take(character).then_some(at + 1));
    Ok(text.split_at_checked(end.unwrap_or(text.len())).unwrap_or((text, "")))
}

fn broken(why: &str) -> NoCalls {
    NoCalls::Broken(why.to_owned())
}

struct CallReader<'a> {
    stands: Stands,
    tools: &'a HashSet<String>,
}

impl CallReader<'_> {
    /// Reads a call, or several that stand in it.
    fn value(&self, json: &str, depth: usize, calls: &mut Vec<WrittenCall>) -> Result<(), NoCalls> {
        let json = json.trim_ascii();
        if depth < DEEPEST
            && let Ok(list) = serde_json::from_str::<Vec<&RawValue>>(json)
        {
            return list.into_iter().try_for_each(|one| self.value(one.get(), depth + 1, calls));
        }
        let Ok(Members(members)) = serde_json::from_str(json) else {
            return Err(self.no_call("a call is an object with `name` and `arguments`"));
        };
        let get =
            |wanted: &str| members.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.get());
        let inner = WHOLE_CALLS.into_iter().filter_map(get).find(|value| value.starts_with(['{', '[']));
        if let Some(inner) = inner.filter(|_| depth < DEEPEST) {
            return self.value(inner, depth + 1, calls);
        }
        calls.push(self.call(&get)?);
        Ok(())
    }

    fn call<'j>(&self, get: &dyn Fn(&str) -> Option<&'j str>) -> Result<WrittenCall, NoCalls> {
        let names = NAMES.into_iter().filter_map(|member| {
            let name = serde_json::from_str::<String>(get(member)?).ok()?;
            Some((member, name))
        });
        let mut names: Vec<_> = names.collect();
        let known = names.iter().position(|(_, name)| self.tools.contains(name));
        if names.is_empty() || self.stands == Stands::Anywhere && known.is_none() {
            return Err(self.no_call("`name` is missing: the name of the tool, as a text"));
        }
        let (member, name) = names.swap_remove(known.unwrap_or(0));
        let arguments = ARGUMENTS.into_iter().find_map(get);
        if self.stands == Stands::Anywhere {
            // Any data may have a name, and tools are described with their parameters.
            let is_other = arguments.is_none() && member == "name" || get("description").is_some();
            if is_other {
                return Err(NoCalls::OtherData);
            }
        }
        Ok(WrittenCall { name, arguments: object_of(arguments.unwrap_or("{}")) })
    }

    fn no_call(&self, why: &str) -> NoCalls {
        match self.stands {
            Stands::InTags => broken(why),
            Stands::Anywhere => NoCalls::OtherData,
        }
    }
}

/// The text of the object that arguments are: itself, what is in a JSON text, or an empty one for nothing. Anything else
/// stays, for the tool to refuse.
fn object_of(arguments: &str) -> String {
    if arguments == "null" {
        return "{}".into();
    }
    let Ok(text) = serde_json::from_str::<String>(arguments) else { return arguments.into() };
    if text.trim().is_empty() {
        return "{}".into();
    }
    match json_of(&text) {
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

    fn read_as(stands: Stands, text: &str) -> Result<Vec<(String, String)>, NoCalls> {
        let calls = read(text, stands, &tools())?;
        Ok(calls.into_iter().map(|call| (call.name, call.arguments)).collect())
    }

    #[test]
    fn every_form_of_a_call() {
        let sum = [("sum", r#"{"a": 1}"#)];
        let mended = [("sum", r#"{"a":1}"#)];
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
            (r#"{"name": "sum", "arguments": "{'a': 1}"}"#, &mended),
            ("{'name': 'sum', 'arguments': {'a': 1,},}", &mended),
            (r#"[{"name": "sum", "arguments": {"a": 1}}, {"tool": "now"}]"#, &both),
            (r#"{"name": "sum", "arguments": {"a": 1}}{"tool": "now"}"#, &both),
            ("{\"name\": \"sum\", \"arguments\": {\"a\": 1}},\n{\"tool\": \"now\"};", &both),
            (r#"{"tool": "now"}"#, &empty),
            (r#"{"name": "now", "arguments": null}"#, &empty),
            (r#"{"name": "now", "arguments": ""}"#, &empty),
            // The tool refuses these, in words that help.
            (r#"{"name": "sum", "arguments": "Paris"}"#, &[("sum", r#""Paris""#)]),
            (r#"{"name": "sum", "arguments": [1]}"#, &[("sum", "[1]")]),
        ];
        for (text, expected) in table {
            for stands in [Stands::InTags, Stands::Anywhere] {
                let calls = read_as(stands, text).unwrap();
                let calls: Vec<_> = calls.iter().map(|(name, arguments)| (&**name, &**arguments)).collect();
                assert_eq!(calls, *expected, "{text}");
            }
        }
    }

    #[test]
    fn in_tags_all_are_calls_or_broken() {
        let call = |name: &str| Ok(vec![(name.to_owned(), "{}".to_owned())]);
        let broken = |why: &str| Err(NoCalls::Broken(why.to_owned()));
        let table = [
            (r#"{"name": "now"}"#, call("now")),
            (r#"{"name": "unknown", "arguments": {}}"#, call("unknown")),
            (r#"{"name": "now", "description": "x"}"#, call("now")),
            ("```json\n{\"name\": \"now\"}\n```", call("now")),
            ("", broken("a call is missing: there is nothing in it")),
            ("[]", broken("a call is missing: there is nothing in it")),
            ("now()", broken("a JSON object with `name` and `arguments` is expected, and nothing else")),
            (
                r#"{"name": "now"}}"#,
                broken("a JSON object with `name` and `arguments` is expected, and nothing else"),
            ),
            (r#"{"arguments": {}}"#, broken("`name` is missing: the name of the tool, as a text")),
            (r#"{"name": 1}"#, broken("`name` is missing: the name of the tool, as a text")),
            ("[1]", broken("a call is an object with `name` and `arguments`")),
            (r#"{"name": "now""#, broken("expected `,` or `}` at line 1, column 15, where it ends")),
        ];
        for (text, expected) in table {
            assert_eq!(read_as(Stands::InTags, text), expected, "{text}");
        }
    }

    #[test]
    fn data_that_is_no_call_of_a_tool_is_other_data() {
        for text in [
            r#"{"name": "unknown", "arguments": {}}"#,
            r#"{"name": "now"}"#,
            r#"{"name": "sum", "description": "Sums", "parameters": {"type": "object"}}"#,
            r#"{"type": "function", "function": {"name": "sum", "description": "Sums", "parameters": {}}}"#,
            r#"[{"tool": "now"}, {"name": "Ada"}]"#,
            r#"[1]"#,
            r#"{"name": {"first": "now"}, "arguments": {}}"#,
        ] {
            assert_eq!(read_as(Stands::Anywhere, text), Err(NoCalls::OtherData), "{text}");
        }
    }
}
