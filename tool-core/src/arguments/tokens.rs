//! The tokens of a JSON text, and the checks that need only one pass over them: duplicate members and depth.
//!
//! serde_json refuses numbers that no `f64` can hold and more than 128 levels, even in values that the type ignores. These passes
//! accept both, and they do not recurse.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::de::IgnoredAny;

use super::budget::MAX_DEPTH;
use super::report::MAX_REPORT_BYTES;
use crate::content::compact_json;

/// The number of names that are compared one by one.
pub(super) const MAX_FEW: usize = 12;

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
    Name {
        quoted: &'a str,
        is_escaped: bool,
    },
    /// A string, a number or a literal.
    Scalar,
}

/// Iterates over the tokens of a text. Invalid JSON also has tokens.
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

    /// Skips a string. Returns `true` if it contains an escape.
    fn skip_string(&mut self) -> bool {
        let mut is_escaped = false;
        self.position += 1;
        while self.skip_while(|byte| !matches!(byte, b'"' | b'\\')) == Some(b'\\') {
            self.position = (self.position + 2).min(self.text.len());
            is_escaped = true;
        }
        self.position = (self.position + 1).min(self.text.len());
        is_escaped
    }

    /// Returns the text from an offset to the current position, or nothing if a broken escape ends within a character.
    fn text_from(&self, start: usize) -> &'a str {
        self.text.get(start..self.position).unwrap_or_default()
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let first = self.skip_while(|byte| byte.is_ascii_whitespace() || matches!(byte, b',' | b':'))?;
        let start = self.position;
        let token = match first {
            b'"' => {
                let is_escaped = self.skip_string();
                let quoted = self.text_from(start);
                let is_name = self.skip_while(|byte| byte.is_ascii_whitespace()) == Some(b':');
                return Some(if is_name { Token::Name { quoted, is_escaped } } else { Token::Scalar });
            }
            b'{' => Token::OpenObject,
            b'[' => Token::OpenList,
            b'}' | b']' => Token::Close,
            _ => {
                self.skip_while(|byte| {
                    !byte.is_ascii_whitespace()
                        && !matches!(byte, b',' | b':' | b'"' | b'{' | b'}' | b'[' | b']')
                });
                return Some(Token::Scalar);
            }
        };
        self.position += 1;
        Some(token)
    }
}

/// An object or list around a position.
struct Container<'a> {
    is_object: bool,
    /// The name of the current member of an object, in its quotes.
    name: &'a str,
    /// The position of its first name among the names of all containers.
    first_name: usize,
    /// The names after the first few.
    more_names: Option<HashSet<Cow<'a, str>>>,
    /// The number of values so far.
    values: usize,
}

/// The objects and lists around a position, the outermost first.
struct Containers<'a> {
    stack: Vec<Container<'a>>,
    /// The first few names of each object, for which a linear search is faster than hashing.
    names: Vec<Cow<'a, str>>,
    /// The number of further levels, which are skipped, as no parser reads them.
    skipped: usize,
}

impl<'a> Containers<'a> {
    fn new() -> Self {
        Self { stack: Vec::new(), names: Vec::with_capacity(MAX_FEW), skipped: 0 }
    }

    /// Moves behind a token. Returns `false` if it is the name of a member that its object has already.
    fn advance(&mut self, token: Token<'a>) -> bool {
        match token {
            Token::OpenObject | Token::OpenList => self.open(token == Token::OpenObject),
            Token::Close => {
                self.close();
                self.end_value();
            }
            Token::Scalar => self.end_value(),
            Token::Name { quoted, is_escaped } => return self.begin_member(quoted, is_escaped),
        }
        true
    }

    fn open(&mut self, is_object: bool) {
        if self.stack.len() < MAX_DEPTH {
            let first_name = self.names.len();
            self.stack.push(Container { is_object, name: "", first_name, more_names: None, values: 0 });
        } else {
            self.skipped += 1;
        }
    }

    fn close(&mut self) {
        if self.skipped > 0 {
            self.skipped -= 1;
        } else if let Some(container) = self.stack.pop() {
            self.names.truncate(container.first_name);
        }
    }

    /// Begins a member of the innermost object. Returns `false` if the object has one of this name already.
    fn begin_member(&mut self, quoted: &'a str, is_escaped: bool) -> bool {
        let Some(object) = self.stack.last_mut().filter(|_| self.skipped == 0) else { return true };
        object.name = quoted;
        let name = if is_escaped { decode(quoted) } else { without_quotes(quoted).into() };
        let few = &self.names[object.first_name..];
        if few.contains(&name) {
            return false;
        }
        if few.len() < MAX_FEW {
            self.names.push(name);
            return true;
        }
        object.more_names.get_or_insert_default().insert(name)
    }

    fn end_value(&mut self) {
        if let Some(container) = self.stack.last_mut().filter(|_| self.skipped == 0) {
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

/// Decodes a name in quotes, which can contain escapes.
fn decode(quoted: &str) -> Cow<'_, str> {
    serde_json::from_str(quoted).map_or_else(|_| without_quotes(quoted).into(), Cow::Owned)
}

fn without_quotes(quoted: &str) -> &str {
    quoted.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap_or(quoted)
}

/// Returns the paths (`.stops[2].name`) of all duplicate members, at any depth, but not more than are reported. Names are compared
/// without escapes.
///
/// Parsers disagree about such texts. Most of them take the last member, while a person may have read and approved the first.
pub(crate) fn duplicate_members(text: &str) -> Vec<String> {
    let (mut duplicates, mut length) = (Vec::new(), 0);
    let mut containers = Containers::new();
    for token in Tokens::new(text) {
        if containers.advance(token) {
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
    duplicates
}

/// Returns the path (`.stops[2].name`) of the value that begins at an offset. Reads the text only up to there.
pub(super) fn path_at(text: &str, offset: usize) -> String {
    let (mut containers, mut tokens) = (Containers::new(), Tokens::new(text));
    while let Some(token) = tokens.next().filter(|_| tokens.position <= offset) {
        containers.advance(token);
    }
    containers.path()
}

/// Returns `true` if the text has more than `levels` levels of objects and lists.
pub(crate) fn is_deeper_than(levels: usize, text: &str) -> bool {
    let mut depth = 0_usize;
    Tokens::new(text).any(|token| {
        match token {
            Token::OpenObject | Token::OpenList => depth += 1,
            Token::Close => depth = depth.saturating_sub(1),
            Token::Name { .. } | Token::Scalar => {}
        }
        depth > levels
    })
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
    fn finds_the_path_of_a_value() {
        let text = r#" {"a": [10, {"b\"": "x"}], "c": true}"#;
        for (value, path) in [("{", ""), ("[", ".a"), ("10", ".a[0]"), ("\"x", ".a[1].b\""), ("true", ".c")] {
            let offset = text.find(value).unwrap();
            assert_eq!(path_at(text, offset), path, "{value}");
        }
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
    fn accepts_any_text() {
        for text in ["", "{", "[1,", r#"{"a"#, r#"{"a": "b\"#, "\"\\é", "]", "}}{", r#"{"a":{"b" 1"#, "é,ü"]
        {
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
