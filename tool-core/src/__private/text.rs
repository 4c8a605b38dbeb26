//! Texts that are built at compile time, for the messages of checks.

use std::panic::Location;

/// Compares two texts.
pub(super) const fn is_equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// A text built at compile time. It is truncated at its capacity.
pub(super) struct Text {
    bytes: [u8; 1024],
    len: usize,
}

impl Text {
    pub(super) const EMPTY: Self = Self { bytes: [0; 1024], len: 0 };

    pub(super) const fn push(&mut self, text: &str) {
        let text = text.as_bytes();
        let mut i = 0;
        while i < text.len() && self.len < self.bytes.len() {
            self.bytes[self.len] = text[i];
            self.len += 1;
            i += 1;
        }
    }

    pub(super) const fn push_location(&mut self, location: &Location<'_>) {
        self.push(location.file());
        self.push(":");
        let mut digits = [0; 10];
        let mut rest = location.line();
        let mut i = digits.len();
        while i == digits.len() || rest > 0 {
            i -= 1;
            digits[i] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        let (_, digits) = digits.split_at(i);
        if let Ok(digits) = str::from_utf8(digits) {
            self.push(digits);
        }
    }

    pub(super) const fn as_str(&self) -> &str {
        match str::from_utf8(self.bytes.split_at(self.len).0) {
            Ok(text) => text,
            Err(_) => "the message is not valid UTF-8",
        }
    }
}
