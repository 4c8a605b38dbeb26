//! The report of all mistakes in the arguments of a call.

use crate::content::first_chars;

/// The length in bytes from which on a report is truncated.
pub(super) const MAX_REPORT_BYTES: usize = 4096;

/// The maximum number of characters of one mistake, whose path can contain names of any length.
const MAX_MISTAKE_CHARS: usize = 2000;

/// The mistakes in arguments, as the model reads them.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Report {
    text: String,
    /// The paths with mistakes. Only the first mistake of a path is reported.
    paths: Vec<String>,
}

impl Report {
    /// Adds a mistake, unless there is one at its path already.
    #[cold]
    pub(super) fn add(&mut self, path: &str, mistake: &str) {
        if self.is_full() || self.paths.iter().any(|other| other == path) {
            return;
        }
        self.paths.push(path.into());
        if !self.text.is_empty() {
            self.text.push_str("; ");
        }
        self.text.push_str(first_chars(mistake, MAX_MISTAKE_CHARS));
        if self.is_full() {
            self.text.push_str("; and more");
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns the number of mistakes.
    pub(super) fn count(&self) -> usize {
        self.paths.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.text.len() > MAX_REPORT_BYTES
    }

    /// Returns the text of the error of the call.
    pub(super) fn into_error(self) -> ArgumentErrors {
        ArgumentErrors(format!("invalid arguments: {}", self.text))
    }
}

/// All mistakes in the arguments of a call, as a sentence for the model.
#[derive(Debug, PartialEq)]
pub(crate) struct ArgumentErrors(pub(crate) String);
