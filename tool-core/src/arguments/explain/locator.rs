//! Location of values in a JSON text.

use super::MAX_DEPTH;

/// Finds the innermost value at an offset of a valid JSON text, and its path.
pub(super) struct Locator<'a> {
    text: &'a str,
    position: usize,
    offset: usize,
}

impl<'a> Locator<'a> {
    /// Returns the path (`.stops[2].name`, empty at the top level) and the text of the value.
    pub(super) fn locate(text: &'a str, offset: usize) -> (String, &'a str) {
        let mut locator = Self { text, position: 0, offset };
        locator.visit_value(0).unwrap_or_else(|| (String::new(), text))
    }

    /// Skips one value. Returns its path and text if the offset is in it.
    fn visit_value(&mut self, depth: usize) -> Option<(String, &'a str)> {
        if depth > MAX_DEPTH {
            self.position = self.text.len();
            return None;
        }
        self.skip_whitespace();
        let start = self.position;
        let mut inner = None;
        match self.peek() {
            Some(open @ (b'{' | b'[')) => {
                self.position += 1;
                for index in 0.. {
                    self.skip_whitespace();
                    if matches!(self.peek(), None | Some(b'}' | b']')) {
                        break;
                    }
                    let name = (open == b'{').then(|| self.skip_name());
                    let found = self.visit_value(depth + 1).map(|(path, value)| match name {
                        Some(name) => (format!(".{name}{path}"), value),
                        None => (format!("[{index}]{path}"), value),
                    });
                    inner = inner.or(found);
                    self.skip_whitespace();
                    if self.peek() == Some(b',') {
                        self.position += 1;
                    }
                }
                self.position += 1;
            }
            Some(b'"') => {
                self.skip_string();
            }
            _ => {
                let rest = &self.text[self.position.min(self.text.len())..];
                self.position += rest.find([',', '}', ']', ' ', '\n', '\r', '\t']).unwrap_or(rest.len());
            }
        }
        let end = self.position.min(self.text.len());
        let contains_offset = start < self.offset && self.offset <= end;
        inner.or_else(|| contains_offset.then(|| (String::new(), &self.text[start.min(end)..end])))
    }

    /// Skips a name and the colon after it, and returns the name.
    fn skip_name(&mut self) -> &'a str {
        let name = self.skip_string();
        self.skip_whitespace();
        self.position += 1;
        name.trim_matches('"')
    }

    fn skip_string(&mut self) -> &'a str {
        let start = self.position;
        self.position += 1;
        while let Some(byte) = self.peek() {
            self.position += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                break;
            }
        }
        self.text.get(start..self.position).unwrap_or_default()
    }

    fn skip_whitespace(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.position += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }
}
