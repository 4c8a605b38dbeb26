//! Where in a text something is.

use super::DEEPEST;

/// Finds the innermost value around an offset of a valid JSON text, and the path to it.
pub(super) struct Locator<'a> {
    text: &'a str,
    position: usize,
    offset: usize,
}

impl<'a> Locator<'a> {
    /// The path (`.stops[2].name`, empty at the top) and the text of the value.
    pub(super) fn locate(text: &'a str, offset: usize) -> (String, &'a str) {
        let mut locator = Self { text, position: 0, offset };
        locator.value(0).unwrap_or_else(|| (String::new(), text))
    }

    /// Passes over one value; gives what it found if the offset is in it.
    fn value(&mut self, depth: usize) -> Option<(String, &'a str)> {
        if depth > DEEPEST {
            self.position = self.text.len();
            return None;
        }
        self.blanks();
        let start = self.position;
        let mut inner = None;
        match self.peek() {
            Some(open @ (b'{' | b'[')) => {
                self.position += 1;
                for index in 0.. {
                    self.blanks();
                    if matches!(self.peek(), None | Some(b'}' | b']')) {
                        break;
                    }
                    let name = (open == b'{').then(|| self.name());
                    let found = self.value(depth + 1).map(|(path, value)| match name {
                        Some(name) => (format!(".{name}{path}"), value),
                        None => (format!("[{index}]{path}"), value),
                    });
                    inner = inner.or(found);
                    self.blanks();
                    if self.peek() == Some(b',') {
                        self.position += 1;
                    }
                }
                self.position += 1;
            }
            Some(b'"') => {
                self.string();
            }
            _ => {
                let rest = &self.text[self.position.min(self.text.len())..];
                self.position += rest.find([',', '}', ']', ' ', '\n', '\r', '\t']).unwrap_or(rest.len());
            }
        }
        let end = self.position.min(self.text.len());
        let is_around = start < self.offset && self.offset <= end;
        inner.or_else(|| is_around.then(|| (String::new(), &self.text[start.min(end)..end])))
    }

    /// Passes over a name and the colon behind it.
    fn name(&mut self) -> &'a str {
        let name = self.string();
        self.blanks();
        self.position += 1;
        name.trim_matches('"')
    }

    fn string(&mut self) -> &'a str {
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

    fn blanks(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.position += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }
}
