//! Converts near-JSON to JSON: Python's dictionaries, lists and tuples, superfluous commas, line breaks in strings. Anything
//! ambiguous is an error with its position. JSON5 parsers accept neither Python's literals nor its tuples.

use serde::de::IgnoredAny;

use super::budget::MAX_DEPTH;
use crate::schema::Kind;

/// Repairs a text that is not a JSON object because it was encoded twice, is in a Markdown fence, or is near-JSON.
pub(crate) fn repair_text(text: &str) -> Option<String> {
    let repaired = match serde_json::from_str::<String>(text) {
        Ok(decoded) => decoded,
        Err(_) => to_json(without_fence(text.trim())).ok()?,
    };
    let is_object = Kind::of(repaired.trim_ascii_start()) == Some(Kind::Object);
    (is_object && serde_json::from_str::<IgnoredAny>(&repaired).is_ok()).then_some(repaired)
}

/// Removes a Markdown fence around the whole text, with or without the name of a language.
fn without_fence(text: &str) -> &str {
    let fenced = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    let Some(fenced) = fenced else { return text };
    fenced.trim_start_matches(|character: char| character.is_alphanumeric()).trim()
}

/// Converts the text of one value to JSON. Preserves every digit of numbers, and the whitespace between values.
///
/// # Errors
///
/// Returns a description of what is expected at which position. It contains nothing of the text.
pub(crate) fn to_json(text: &str) -> Result<String, String> {
    let mut converter = Converter { text, position: 0, json: String::with_capacity(text.len()) };
    let result = converter.value(0).and_then(|()| match converter.peek() {
        None => Ok(()),
        Some(_) => Err("the end"),
    });
    result.map_err(|expected| converter.describe(expected))?;
    Ok(converter.json)
}

struct Converter<'a> {
    text: &'a str,
    /// The position in the text, in bytes.
    position: usize,
    json: String,
}

/// The result of converting a value. The error is what was expected at the current position.
type Converted = Result<(), &'static str>;

impl Converter<'_> {
    /// Describes what was expected at the current position.
    fn describe(&self, expected: &str) -> String {
        let before = self.text.get(..self.position).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|character| *character != '\n').count() + 1;
        let found = if self.rest().is_empty() { ", found the end" } else { "" };
        format!("expected {expected} at line {line}, column {column}{found}")
    }

    fn rest(&self) -> &str {
        self.text.get(self.position..).unwrap_or_default()
    }

    /// Copies whitespace and returns the next character without consuming it.
    fn peek(&mut self) -> Option<char> {
        while let Some(character) = self.rest().chars().next() {
            match character {
                ' ' | '\t' | '\n' | '\r' => self.json.push(character),
                // JSON knows only these.
                other if other.is_whitespace() => self.json.push(' '),
                other => return Some(other),
            }
            self.position += character.len_utf8();
        }
        None
    }

    fn value(&mut self, depth: usize) -> Converted {
        if depth > MAX_DEPTH {
            return Err("fewer nested brackets");
        }
        match self.peek() {
            Some('{') => self.object(depth),
            Some('[') => self.list(']', depth),
            Some('(') => self.list(')', depth),
            Some(quote @ ('"' | '\'')) => self.string(quote),
            Some('-' | '0'..='9') => self.number(),
            Some(character) if character.is_alphabetic() => self.word(),
            _ => Err("a value"),
        }
    }

    fn object(&mut self, depth: usize) -> Converted {
        self.position += 1;
        self.json.push('{');
        let mut comma = self.commas();
        let mut is_first = true;
        loop {
            match self.peek() {
                Some('}') => break,
                Some(quote @ ('"' | '\'')) if is_first || comma.is_some() => self.string(quote)?,
                _ if is_first => return Err("a name in quotes or `}`"),
                _ if comma.is_some() => return Err("a name in quotes"),
                _ => return Err("`,` or `}`"),
            }
            is_first = false;
            if self.peek() != Some(':') {
                return Err("`:`");
            }
            self.position += 1;
            self.json.push(':');
            self.value(depth + 1)?;
            comma = self.commas();
        }
        self.close('}', comma);
        Ok(())
    }

    /// Converts a list or a tuple. Parentheses around a single value without a comma are removed.
    fn list(&mut self, end: char, depth: usize) -> Converted {
        let start = self.json.len();
        self.position += 1;
        self.json.push('[');
        let mut comma = self.commas();
        let mut count = 0_usize;
        while self.peek() != Some(end) {
            if count > 0 && comma.is_none() {
                return Err(if end == ']' { "`,` or `]`" } else { "`,` or `)`" });
            }
            self.value(depth + 1)?;
            count += 1;
            comma = self.commas();
        }
        self.close(']', comma);
        if end == ')' && count == 1 && comma.is_none() {
            self.json.pop();
            self.json.remove(start);
        }
        Ok(())
    }

    /// Consumes commas. Writes one if a value precedes them, and returns its position in the JSON.
    fn commas(&mut self) -> Option<usize> {
        let is_leading = self.json.ends_with(['{', '[']);
        let mut comma = None;
        while self.peek() == Some(',') {
            self.position += 1;
            if comma.is_none() && !is_leading {
                comma = Some(self.json.len());
                self.json.push(',');
            }
        }
        comma
    }

    /// Ends an object or list, without a comma after its last value.
    fn close(&mut self, end: char, comma: Option<usize>) {
        self.position += 1;
        if let Some(position) = comma {
            self.json.remove(position);
        }
        self.json.push(end);
    }

    fn number(&mut self) -> Converted {
        let rest = self.rest();
        let is_number_byte = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
        let end = rest.bytes().position(|byte| !is_number_byte(&byte)).unwrap_or(rest.len());
        let number = rest.get(..end).unwrap_or_default().to_owned();
        if serde_json::from_str::<IgnoredAny>(&number).is_err() {
            return Err("a valid JSON number");
        }
        self.position += end;
        self.json.push_str(&number);
        Ok(())
    }

    fn word(&mut self) -> Converted {
        const WORDS: [(&str, &str); 6] = [
            ("True", "true"),
            ("False", "false"),
            ("None", "null"),
            ("true", "true"),
            ("false", "false"),
            ("null", "null"),
        ];
        let rest = self.rest();
        let end = rest.find(|character: char| !character.is_alphanumeric() && character != '_');
        let found = rest.get(..end.unwrap_or(rest.len()));
        let Some((word, json)) = WORDS.into_iter().find(|(word, _)| Some(*word) == found) else {
            return Err("a value (strings need quotes)");
        };
        self.position += word.len();
        self.json.push_str(json);
        Ok(())
    }

    fn string(&mut self, quote: char) -> Converted {
        self.position += 1;
        self.json.push('"');
        loop {
            let Some(character) = self.next() else { return Err("a closing quote") };
            match character {
                _ if character == quote => break,
                '\\' => self.escape(quote)?,
                character => self.push(character),
            }
        }
        self.json.push('"');
        Ok(())
    }

    /// Converts an escape sequence: of JSON, or in single quotes of Python, where a backslash that escapes nothing is a literal
    /// backslash.
    fn escape(&mut self, quote: char) -> Converted {
        let Some(character) = self.next() else { return Err("a closing quote") };
        match character {
            '"' | '\\' | '/' => self.json.extend(['\\', character]),
            'b' | 'f' | 'n' | 'r' | 't' => self.json.extend(['\\', character]),
            // Unchanged, as it can be half of a surrogate pair.
            'u' if self.hexadecimal(4).is_some() => self.json.extend(['\\', 'u']),
            '\'' => self.json.push('\''),
            _ if quote == '"' => {
                self.position -= character.len_utf8();
                return Err("a valid escape");
            }
            'U' | 'x' => {
                let length = if character == 'U' { 8 } else { 2 };
                match self.hexadecimal(length).and_then(char::from_u32) {
                    Some(escaped) => {
                        self.position += length;
                        self.push(escaped);
                    }
                    None => self.json.extend(['\\', '\\', character]),
                }
            }
            '\n' => {}
            other => {
                self.json.push_str("\\\\");
                self.push(other);
            }
        }
        Ok(())
    }

    /// Returns the value of the next `length` hexadecimal digits without consuming them.
    fn hexadecimal(&self, length: usize) -> Option<u32> {
        let digits = self.rest().get(..length)?;
        let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_number.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
    }

    fn next(&mut self) -> Option<char> {
        let character = self.rest().chars().next()?;
        self.position += character.len_utf8();
        Some(character)
    }

    /// Appends a character of a string, escaped if necessary.
    fn push(&mut self, character: char) {
        match character {
            '"' | '\\' => self.json.extend(['\\', character]),
            '\0'..='\u{1f}' => {
                let code = u32::from(character);
                self.json.push_str(&format!("\\u{code:04x}"));
            }
            _ => self.json.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_near_json() {
        let table = [
            ("{'a': 'b'}", r#"{"a": "b"}"#),
            ("{'a': True, 'b': False, 'c': None}", r#"{"a": true, "b": false, "c": null}"#),
            (
                r#"{"a": [1, -2.50, 1e400, 12345678901234567890123],}"#,
                r#"{"a": [1, -2.50, 1e400, 12345678901234567890123]}"#,
            ),
            ("(1, 2)", "[1, 2]"),
            ("(1,)", "[1]"),
            ("(1)", "1"),
            ("((1, (2,)), ())", "[[1, [2]], []]"),
            ("[1, 2, ]", "[1, 2 ]"),
            (r#"{"foo":"bar","qux":12,}"#, r#"{"foo":"bar","qux":12}"#),
            (r#"{"a":[1,2, ],"b":{"c":1 , } , }"#, r#"{"a":[1,2 ],"b":{"c":1  }  }"#),
            ("{,}", "{}"),
            ("[,]", "[]"),
            (r#"{"a":[1,,2]}"#, r#"{"a":[1,2]}"#),
            (r#"{"a":",}","b":"\",]"}"#, r#"{"a":",}","b":"\",]"}"#),
            (r#"'it\'s "quoted"'"#, r#""it's \"quoted\"""#),
            (r#""it's""#, r#""it's""#),
            (r#""it\'s""#, r#""it's""#),
            ("\"two\nlines\tand a tab\"", r#""two\u000alines\u0009and a tab""#),
            (r#"'\n \x41 \U0001f600 \u00e9 \d \x4 \\ \/'"#, r#""\n A 😀 \u00e9 \\d \\x4 \\ \/""#),
            ("'one \\\nline'", r#""one line""#),
            ("\u{a0}{ }\t", " { }\t"),
        ];
        for (text, expected) in table {
            assert_eq!(to_json(text).as_deref(), Ok(expected), "{text}");
            serde_json::from_str::<IgnoredAny>(expected).unwrap();
        }
    }

    #[test]
    fn reports_errors_with_positions() {
        let table = [
            ("", "expected a value at line 1, column 1, found the end"),
            ("{'a' 1}", "expected `:` at line 1, column 6"),
            ("{'a': 1 'b': 2}", "expected `,` or `}` at line 1, column 9"),
            ("{\n 'é': [1\n 2]}", "expected `,` or `]` at line 3, column 2"),
            ("(1 2)", "expected `,` or `)` at line 1, column 4"),
            ("{a: 1}", "expected a name in quotes or `}` at line 1, column 2"),
            ("{'a': 1", "expected `,` or `}` at line 1, column 8, found the end"),
            ("{'a': Paris}", "expected a value (strings need quotes) at line 1, column 7"),
            ("{'a': 'b", "expected a closing quote at line 1, column 9, found the end"),
            ("{'a': 1-2}", "expected a valid JSON number at line 1, column 7"),
            ("{} {}", "expected the end at line 1, column 4"),
            (r#"{"a": "\d"}"#, "expected a valid escape at line 1, column 9"),
        ];
        for (text, expected) in table {
            assert_eq!(to_json(text).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn repairs_only_whole_objects() {
        let table = [
            (r#""{\"foo\":\"bar\"}""#, Some(r#"{"foo":"bar"}"#)),
            ("```json\n{\"a\": 1}\n```", Some(r#"{"a": 1}"#)),
            ("```\n{'a': 1,}```", Some(r#"{"a": 1}"#)),
            ("{\"a\": \"one\ntwo\"}", Some(r#"{"a": "one\u000atwo"}"#)),
            ("Here it is: {\"a\": 1,}", None),
            ("```json\n{\"a\": 1}\n``` done", None),
            ("{'a': 'it's'}", None),
            ("{'a': 1} {'b': 2}", None),
            ("{'a': 1", None),
            ("[1,]", None),
            ("(1,)", None),
            ("", None),
            ("\"abc\"", None),
            ("\"[1]\"", None),
            ("{ invalid JSON }", None),
        ];
        for (text, expected) in table {
            assert_eq!(repair_text(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn limits_the_depth() {
        let deep = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert!(to_json(&deep(MAX_DEPTH)).is_ok());
        let error = to_json(&deep(1 << 20)).unwrap_err();
        assert_eq!(error, "expected fewer nested brackets at line 1, column 130");
    }
}
