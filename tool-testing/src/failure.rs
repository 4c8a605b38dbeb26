//! What a check says that fails.

use std::fmt;

/// What was expected and what has happened, side by side. `Debug` writes the same text, because the standard library prints the errors of tests
/// that way. It contains arguments and outputs.
pub struct CheckError(String);

/// The greatest width of the left column.
const MAX_WIDTH: usize = 70;

impl CheckError {
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }

    /// Creates the error of expectations about calls: each with its state, and each call.
    pub(crate) fn of_calls(why: &str, expected: &[String], calls: &[String]) -> Self {
        let width = expected.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        let width = width.clamp("expected".len(), MAX_WIDTH);
        let mut text = format!("{why}\n\n  {:width$} | called\n", "expected");
        for row in 0..expected.len().max(calls.len()) {
            let (left, right) = (expected.get(row), calls.get(row));
            let left = left.map_or("", |line| line);
            let right = right.map_or("", |line| line);
            text.push_str(format!("  {left:width$} | {right}").trim_end());
            text.push('\n');
        }
        if calls.is_empty() {
            text.push_str("\n  nothing was called\n");
        }
        Self(text)
    }
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CheckError {}
