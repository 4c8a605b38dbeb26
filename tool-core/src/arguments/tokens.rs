//! The tokens of a JSON text, and the checks that need only one pass over them: duplicate members, depth, and the value at an
//! offset.
//!
//! serde_json refuses numbers that no `f64` can hold and more than 128 levels, even in values that the type ignores. These passes
//! accept both, and they do not recurse.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use serde::de::IgnoredAny;

use super::budget::MAX_DEPTH;
use super::explain::offset_in;
use crate::arguments::MAX_REPORT_BYTES;
use crate::content::compact_json;

/// The number of names that are compared one by one.
const MAX_FEW: usize = 12;

/// Returns a text of arguments in a form that is equal for the same arguments, whatever the whitespace between the tokens. What is
/// not JSON is unchanged, because its whitespace can have a meaning.
pub(crate) fn without_whitespace(text: &str) -> Cow<'_, str> {
    match text.trim() {
        "" => Cow::Borrowed("{}"),
        text if text.contains(char::is_whitespace) && serde_json::from_str::<IgnoredAny>(text).is_ok() => {
            compact_json(text)
        }
        text => Cow::Borrowed(text),
    }
}

/// A token of a JSON text. Whitespace, commas and colons are skipped.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Token<'a> {
    OpenObject,
    OpenList,
    Close,
    /// The name of a member, in its quotes.
    Name(&'a str),
    /// A string in its quotes, a number or a literal.
    Scalar(&'a str),
}

/// Iterates over the tokens of a text, each with the offset of its end. Invalid JSON also has tokens.
struct Tokens<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Tokens<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, position: 0 }
    }

    /// Skips all bytes that satisfy the predicate. Returns the byte that follows.
    fn skip_while(&mut self, predicate: impl Fn(u8) -> bool) -> Option<u8> {
        let rest = &self.text.as_bytes()[self.position..];
        let length = rest.iter().take_while(|byte| predicate(**byte)).count();
        self.position += length;
        rest.get(length).copied()
    }

    /// Skips a string.
    fn skip_string(&mut self) {
        self.position += 1;
        while self.skip_while(|byte| !matches!(byte, b'"' | b'\\')) == Some(b'\\') {
            self.position = (self.position + 2).min(self.text.len());
        }
        self.position = (self.position + 1).min(self.text.len());
    }

    /// Returns the text from an offset to the current position, or nothing if a broken escape ends within a character.
    fn text_from(&self, start: usize) -> &'a str {
        self.text.get(start..self.position).unwrap_or_default()
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = (Token<'a>, usize);

    fn next(&mut self) -> Option<Self::Item> {
        let first = self.skip_while(|byte| byte.is_ascii_whitespace() || matches!(byte, b',' | b':'))?;
        let start = self.position;
        let token = match first {
            b'"' => {
                self.skip_string();
                let (string, end) = (self.text_from(start), self.position);
                let is_name = self.skip_while(|byte| byte.is_ascii_whitespace()) == Some(b':');
                return Some((if is_name { Token::Name(string) } else { Token::Scalar(string) }, end));
            }
            b'{' => Token::OpenObject,
            b'[' => Token::OpenList,
            b'}' | b']' => Token::Close,
            _ => {
                self.skip_while(|byte| {
                    !byte.is_ascii_whitespace()
                        && !matches!(byte, b',' | b':' | b'"' | b'{' | b'}' | b'[' | b']')
                });
                return Some((Token::Scalar(self.text_from(start)), self.position));
            }
        };
        self.position += 1;
        Some((token, self.position))
    }
}

/// An object or list around a position.
struct Container<'a> {
    start: usize,
    is_object: bool,
    /// The name of the current member of an object, in its quotes.
    name: &'a str,
    names: Names<'a>,
    /// The number of values so far.
    values: usize,
}

/// The names of the members of an object so far.
#[derive(Default)]
struct Names<'a> {
    /// The first few names, for which a linear search is faster than hashing.
    few: Vec<Cow<'a, str>>,
    many: HashSet<Cow<'a, str>>,
}

impl<'a> Names<'a> {
    /// Adds a name. Returns `false` if the object has it already.
    fn insert(&mut self, name: Cow<'a, str>) -> bool {
        if self.few.contains(&name) {
            return false;
        }
        if self.few.len() < MAX_FEW {
            self.few.push(name);
            return true;
        }
        self.many.insert(name)
    }
}

/// The objects and lists around a position, the outermost first.
#[derive(Default)]
struct Containers<'a> {
    stack: Vec<Container<'a>>,
    /// The number of further levels, which are skipped, as no parser reads them.
    skipped: usize,
}

impl<'a> Containers<'a> {
    fn open(&mut self, start: usize, is_object: bool) {
        if self.stack.len() < MAX_DEPTH {
            self.stack.push(Container { start, is_object, name: "", names: Names::default(), values: 0 });
        } else {
            self.skipped += 1;
        }
    }

    fn close(&mut self) -> Option<Container<'a>> {
        match self.skipped {
            0 => self.stack.pop(),
            _ => {
                self.skipped -= 1;
                None
            }
        }
    }

    /// Returns the innermost container, unless it is skipped.
    fn innermost(&mut self) -> Option<&mut Container<'a>> {
        self.stack.last_mut().filter(|_| self.skipped == 0)
    }

    fn end_value(&mut self) {
        if let Some(container) = self.innermost() {
            container.values += 1;
        }
    }

    /// Returns the path of the current value: `.stops[2].name`.
    fn path(&self) -> String {
        let mut path = String::new();
        for one in &self.stack {
            if one.is_object {
                path.extend([".", &decode(one.name)]);
            } else {
                path.push_str(&format!("[{}]", one.values));
            }
        }
        path
    }
}

/// Decodes a name, which can contain escapes.
fn decode(name: &str) -> Cow<'_, str> {
    match name.contains('\\').then(|| serde_json::from_str::<String>(name)) {
        Some(Ok(name)) => name.into(),
        _ => name.trim_matches('"').into(),
    }
}

/// Returns the paths (`.stops[2].name`) of all duplicate members, at any depth, but not more than are reported. Names are compared
/// without escapes.
///
/// Parsers disagree about such texts. Most of them take the last member, while a person may have read and approved the first.
pub(crate) fn duplicate_members(text: &str) -> Vec<String> {
    let (mut duplicates, mut length) = (Vec::new(), 0);
    let mut containers = Containers::default();
    for (token, end) in Tokens::new(text) {
        match token {
            Token::OpenObject | Token::OpenList => containers.open(end - 1, token == Token::OpenObject),
            Token::Close => {
                containers.close();
                containers.end_value();
            }
            Token::Scalar(_) => containers.end_value(),
            Token::Name(name) => {
                let Some(object) = containers.innermost() else { continue };
                object.name = name;
                if object.names.insert(decode(name)) {
                    continue;
                }
                let path = containers.path();
                length += path.len();
                if !duplicates.contains(&path) {
                    duplicates.push(path);
                }
                if length > MAX_REPORT_BYTES {
                    break;
                }
            }
        }
    }
    duplicates
}

/// Returns `true` if the text has more than `levels` levels of objects and lists.
pub(crate) fn is_deeper_than(levels: usize, text: &str) -> bool {
    let mut depth = 0_usize;
    Tokens::new(text).any(|(token, _)| {
        match token {
            Token::OpenObject | Token::OpenList => depth += 1,
            Token::Close => depth = depth.saturating_sub(1),
            Token::Name(_) | Token::Scalar(_) => {}
        }
        depth > levels
    })
}

/// A value in a text.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) value: Range<usize>,
    /// The value with its name, if it is a member.
    pub(crate) entry: Range<usize>,
    /// The position of the object or list that has it.
    pub(crate) container: Option<usize>,
    /// It is an item of a list.
    pub(crate) is_item: bool,
}

/// Returns the innermost value at an offset.
pub(crate) fn part_at(text: &str, offset: usize) -> Part {
    let (containers, value) = find_at(text, offset);
    let container = containers.stack.last();
    let name = container.map(|container| container.name).filter(|name| !name.is_empty());
    let start = name.map_or(value.start, |name| offset_in(text, name));
    Part {
        entry: start..value.end,
        value,
        container: container.map(|container| container.start),
        is_item: container.is_some_and(|container| !container.is_object),
    }
}

/// Returns the path (`.stops[2].name`, empty at the top level) and the text of the innermost value at an offset.
pub(crate) fn value_at(text: &str, offset: usize) -> (String, &str) {
    let (containers, value) = find_at(text, offset);
    (containers.path(), text.get(value).unwrap_or_default())
}

/// Finds the innermost value at an offset, and what contains it.
fn find_at(text: &str, offset: usize) -> (Containers<'_>, Range<usize>) {
    let mut containers = Containers::default();
    let contains_offset = |start: usize, end: usize| start < offset && offset <= end;
    for (token, end) in Tokens::new(text) {
        let start = match token {
            Token::OpenObject | Token::OpenList => {
                containers.open(end - 1, token == Token::OpenObject);
                continue;
            }
            Token::Name(name) => {
                if let Some(object) = containers.innermost() {
                    object.name = name;
                }
                continue;
            }
            Token::Scalar(scalar) => Some(end - scalar.len()),
            Token::Close => containers.close().map(|container| container.start),
        };
        if let Some(start) = start.filter(|start| contains_offset(*start, end)) {
            return (containers, start..end);
        }
        containers.end_value();
    }
    // The text ends within these.
    while let Some(container) = containers.close() {
        if contains_offset(container.start, text.len()) {
            return (containers, container.start..text.len());
        }
    }
    (containers, 0..text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_duplicate_members_at_any_depth() {
        let table: &[(&str, &[&str])] = &[
            (r#"{"a":1,"b":{"a":1},"c":[{"a":1},{"a":2}]}"#, &[]),
            (r#"{"a":"a","b":["a","a"]}"#, &[]),
            (r#"{"a":1,"a":2}"#, &[".a"]),
            (r#"{"a":1,"b":2,"a":3,"a":4}"#, &[".a"]),
            (r#"{"a":1,"\u0061":2}"#, &[".a"]),
            (r#"{"\u0061":1,"a":2}"#, &[".a"]),
            (r#"{"a":{"b":[0,{"c":1, "c" : 2}]}}"#, &[".a.b[1].c"]),
            (r#"{"a":{"b":1,"b":2},"c":{"b":1},"a":3}"#, &[".a.b", ".a"]),
            (r#"{"a":"{\"b\":1,\"b\":2}"}"#, &[]),
            (r#"{"a\"":1,"a":2,"a\"":3}"#, &[".a\""]),
            (r#"{"":1,"":2}"#, &["."]),
            (r#"[{"a":1,"a":2}]"#, &["[0].a"]),
            (r#"{"a":null,"a":1}"#, &[".a"]),
            (r#"{"a":1e999,"a":1}"#, &[".a"]),
        ];
        for (text, expected) in table {
            assert_eq!(duplicate_members(text), *expected, "{text}");
        }
    }

    #[test]
    fn hostile_texts_take_bounded_time_and_memory() {
        let deep = r#"{"a":"#.repeat(100_000) + "0" + &"}".repeat(100_000);
        assert_eq!(duplicate_members(&format!(r#"[{deep},{{"b":1,"b":2}}]"#)), ["[1].b"]);
        assert!(is_deeper_than(99_999, &deep) && !is_deeper_than(100_000, &deep));
        let many = format!("{{{}}}", r#""a":{"b":1,"b":2},"#.repeat(20_000));
        assert_eq!(duplicate_members(&many), [".a.b", ".a"]);
        let names: Vec<_> = (0..20_000).map(|number| format!(r#""name{number}":0"#)).collect();
        let twice = format!("{{{0},{0}}}", names.join(","));
        let reported: usize = duplicate_members(&twice).iter().map(String::len).sum();
        assert!((MAX_REPORT_BYTES..MAX_REPORT_BYTES + 20).contains(&reported), "{reported}");
    }

    #[test]
    fn measures_the_depth() {
        for (text, depth) in [("1", 0), ("{}", 1), (r#"{"a":[{}]}"#, 3), (r#"{"a":"[[[[","b":[]}"#, 2)] {
            assert!(
                !is_deeper_than(depth, text) && (depth == 0 || is_deeper_than(depth - 1, text)),
                "{text}"
            );
        }
    }

    #[test]
    fn finds_the_innermost_value_at_an_offset() {
        let text = r#" {"a": [10, {"b\"": "x"}], "c": true}"#;
        let table = [
            (0, "", text),
            (2, "", text.trim_start()),
            (9, ".a[0]", "10"),
            (10, ".a[0]", "10"),
            (11, ".a", r#"[10, {"b\"": "x"}]"#),
            (15, ".a[1]", r#"{"b\"": "x"}"#),
            (22, r#".a[1].b""#, r#""x""#),
            (35, ".c", "true"),
            (37, "", text.trim_start()),
        ];
        for (offset, path, value) in table {
            assert_eq!(value_at(text, offset), (path.to_owned(), value), "{offset}");
        }
    }

    #[test]
    fn accepts_any_text_and_offset() {
        for text in ["", "{", "[1,", r#"{"a"#, r#"{"a": "b\"#, "\"\\é", "]", "}}{", r#"{"a":{"b" 1"#, "é,ü"]
        {
            for offset in 0..=text.len() + 1 {
                let _ = value_at(text, offset);
            }
            let _ = (duplicate_members(text), is_deeper_than(1, text));
        }
    }

    #[test]
    fn removes_the_whitespace_of_json_alone() {
        let table = [
            ("", "{}"),
            (" \n", "{}"),
            ("{ }", "{}"),
            ("{\"a\" : [1, 2.50 ] ,\n\"b\": \"c d\"}", "{\"a\":[1,2.50],\"b\":\"c d\"}"),
            (r#"{"a": "\" x\\", "b": " y"}"#, r#"{"a":"\" x\\","b":" y"}"#),
            ("{\"a\": 1 2}", "{\"a\": 1 2}"),
            ("{'a': 'b  c'}", "{'a': 'b  c'}"),
        ];
        for (text, expected) in table {
            assert_eq!(without_whitespace(text), expected, "{text}");
        }
    }
}
