//! Writes as JSON what was written nearly as JSON: Python's dictionaries, lists and tuples, loose commas, line breaks in
//! strings. Nothing is guessed: what has no clear meaning is told, with its place.

use serde::de::IgnoredAny;

/// How deep values may stand inside each other.
const DEEPEST: usize = 128;

/// The JSON of one value, which the text is. Numbers keep all their digits.
///
/// # Errors
///
/// What is expected in the place of what stands there.
pub(super) fn json_of(text: &str) -> Result<String, String> {
    let mut writer = Writer { text, at: 0, json: String::with_capacity(text.len()) };
    let written = writer.value(0).and_then(|()| match writer.next() {
        None => Ok(()),
        Some(_) => Err("the end"),
    });
    written.map_err(|expected| writer.tell(expected))?;
    Ok(writer.json)
}

struct Writer<'a> {
    text: &'a str,
    at: usize,
    json: String,
}

type Written = Result<(), &'static str>;

impl Writer<'_> {
    /// What is wrong in words, and where. It holds nothing of the text.
    fn tell(&self, expected: &str) -> String {
        let before = self.text.get(..self.at).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|character| *character != '\n').count() + 1;
        let found = if self.rest().is_empty() { ", where it ends" } else { "" };
        format!("expected {expected} at line {line}, column {column}{found}")
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The next character that is no blank, which stays.
    fn next(&mut self) -> Option<char> {
        let rest = self.rest();
        let next = rest.trim_start();
        self.at += rest.len() - next.len();
        self.rest().chars().next()
    }

    fn value(&mut self, depth: usize) -> Written {
        if depth > DEEPEST {
            return Err("no further brackets inside of so many");
        }
        match self.next() {
            Some('{') => self.object(depth),
            Some('[') => self.list(']', depth),
            Some('(') => self.list(')', depth),
            Some(quote @ ('"' | '\'')) => self.string(quote),
            Some('-' | '0'..='9') => self.number(),
            Some(character) if character.is_alphabetic() => self.word(),
            _ => Err("a value"),
        }
    }

    fn object(&mut self, depth: usize) -> Written {
        self.at += 1;
        self.json.push('{');
        let mut is_first = true;
        loop {
            match self.next() {
                Some('}') => {
                    self.at += 1;
                    self.json.push('}');
                    return Ok(());
                }
                Some(quote @ ('"' | '\'')) => {
                    if !is_first {
                        self.json.push(',');
                    }
                    self.string(quote)?;
                }
                _ if is_first => return Err("a name in quotes or `}`"),
                _ => return Err("a name in quotes"),
            }
            is_first = false;
            if self.next() != Some(':') {
                return Err("`:`");
            }
            self.at += 1;
            self.json.push(':');
            self.value(depth + 1)?;
            if !self.comma() && self.next() != Some('}') {
                return Err("`,` or `}`");
            }
        }
    }

    /// A list or a tuple; round brackets without a comma only stand around a value.
    fn list(&mut self, end: char, depth: usize) -> Written {
        let start = self.json.len();
        self.at += 1;
        self.json.push('[');
        let (mut count, mut has_comma) = (0_usize, false);
        while self.next() != Some(end) {
            if count > 0 && !has_comma {
                return Err(if end == ']' { "`,` or `]`" } else { "`,` or `)`" });
            }
            if count > 0 {
                self.json.push(',');
            }
            self.value(depth + 1)?;
            count += 1;
            has_comma = self.comma();
        }
        self.at += 1;
        if end == ')' && count == 1 && !has_comma {
            self.json.remove(start);
        } else {
            self.json.push(']');
        }
        Ok(())
    }

    /// Takes a comma, if one comes.
    fn comma(&mut self) -> bool {
        let is_there = self.next() == Some(',');
        self.at += usize::from(is_there);
        is_there
    }

    fn number(&mut self) -> Written {
        let rest = self.rest();
        let is_of_number = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
        let end = rest.bytes().position(|byte| !is_of_number(&byte)).unwrap_or(rest.len());
        let number = rest.get(..end).unwrap_or_default().to_owned();
        if serde_json::from_str::<IgnoredAny>(&number).is_err() {
            return Err("a number as JSON has it");
        }
        self.at += end;
        self.json.push_str(&number);
        Ok(())
    }

    fn word(&mut self) -> Written {
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
        let came = rest.get(..end.unwrap_or(rest.len()));
        let Some((word, json)) = WORDS.into_iter().find(|(word, _)| Some(*word) == came) else {
            return Err("a value; a text stands in quotes");
        };
        self.at += word.len();
        self.json.push_str(json);
        Ok(())
    }

    fn string(&mut self, quote: char) -> Written {
        self.at += 1;
        self.json.push('"');
        loop {
            let Some(character) = self.take() else { return Err("the closing quote of a text") };
            match character {
                _ if character == quote => break,
                '\\' => self.escape()?,
                character => self.write(character),
            }
        }
        self.json.push('"');
        Ok(())
    }

    /// What stands behind a backslash, in JSON or in Python. A backslash that escapes nothing is one.
    fn escape(&mut self) -> Written {
        let Some(character) = self.take() else { return Err("the closing quote of a text") };
        match character {
            '"' | '\\' | '/' => self.json.extend(['\\', character]),
            'b' | 'f' | 'n' | 'r' | 't' => self.json.extend(['\\', character]),
            // It stays as it is, as it may be the half of a pair.
            'u' if self.hexadecimal(4).is_some() => self.json.extend(['\\', 'u']),
            'U' | 'x' => {
                let length = if character == 'U' { 8 } else { 2 };
                match self.hexadecimal(length).and_then(char::from_u32) {
                    Some(escaped) => {
                        self.at += length;
                        self.write(escaped);
                    }
                    None => self.json.extend(['\\', '\\', character]),
                }
            }
            '\'' => self.json.push('\''),
            '\n' => {}
            other => {
                self.json.push_str("\\\\");
                self.write(other);
            }
        }
        Ok(())
    }

    /// The number that so many digits stand for, if they come.
    fn hexadecimal(&self, length: usize) -> Option<u32> {
        let digits = self.rest().get(..length)?;
        let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_number.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
    }

    fn take(&mut self) -> Option<char> {
        let character = self.rest().chars().next()?;
        self.at += character.len_utf8();
        Some(character)
    }

    /// Writes a character of a string.
    fn write(&mut self, character: char) {
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
    fn what_is_nearly_json_becomes_json() {
        let table = [
            ("{'a': 'b'}", r#"{"a":"b"}"#),
            ("{'a': True, 'b': False, 'c': None}", r#"{"a":true,"b":false,"c":null}"#),
            (
                r#"{"a": [1, -2.50, 1e400, 12345678901234567890123],}"#,
                r#"{"a":[1,-2.50,1e400,12345678901234567890123]}"#,
            ),
            ("(1, 2)", "[1,2]"),
            ("(1,)", "[1]"),
            ("(1)", "1"),
            ("((1, (2,)), ())", "[[1,[2]],[]]"),
            ("[1, 2, ]", "[1,2]"),
            (r#"'it\'s "quoted"'"#, r#""it's \"quoted\"""#),
            (r#""it's""#, r#""it's""#),
            ("\"two\nlines\tand a tab\"", r#""two\u000alines\u0009and a tab""#),
            (r#"'\n \x41 \U0001f600 \u00e9 \d \x4 \\ \/'"#, r#""\n A 😀 \u00e9 \\d \\x4 \\ \/""#),
            ("'one \\\nline'", r#""one line""#),
            (r#"  {}  "#, "{}"),
        ];
        for (text, expected) in table {
            assert_eq!(json_of(text).as_deref(), Ok(expected), "{text}");
            serde_json::from_str::<IgnoredAny>(expected).unwrap();
        }
    }

    #[test]
    fn what_has_no_clear_meaning_is_told_with_its_place() {
        let table = [
            ("", "expected a value at line 1, column 1, where it ends"),
            ("{'a' 1}", "expected `:` at line 1, column 6"),
            ("{'a': 1 'b': 2}", "expected `,` or `}` at line 1, column 9"),
            ("{\n 'é': [1\n 2]}", "expected `,` or `]` at line 3, column 2"),
            ("(1 2)", "expected `,` or `)` at line 1, column 4"),
            ("{a: 1}", "expected a name in quotes or `}` at line 1, column 2"),
            ("{'a': 1", "expected `,` or `}` at line 1, column 8, where it ends"),
            ("{'a': Paris}", "expected a value; a text stands in quotes at line 1, column 7"),
            ("{'a': 'b", "expected the closing quote of a text at line 1, column 9, where it ends"),
            ("{'a': 1-2}", "expected a number as JSON has it at line 1, column 7"),
            ("{} {}", "expected the end at line 1, column 4"),
        ];
        for (text, expected) in table {
            assert_eq!(json_of(text).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let deep = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert!(json_of(&deep(DEEPEST)).is_ok());
        let told = json_of(&deep(1 << 20)).unwrap_err();
        assert_eq!(told, "expected no further brackets inside of so many at line 1, column 130");
    }
}
