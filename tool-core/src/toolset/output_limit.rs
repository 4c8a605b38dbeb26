//! The limit on the output of calls.

use crate::tool::{Outcome, truncate_outcome};

/// A limit on the characters of one output.
#[derive(Clone, Copy)]
pub(super) struct OutputLimit {
    chars: usize,
    /// A function, so that programs without a limit do not contain its code and the tables of Unicode.
    truncate: fn(Outcome, usize) -> Outcome,
}

impl PartialEq for OutputLimit {
    fn eq(&self, other: &Self) -> bool {
        self.chars == other.chars
    }
}

impl OutputLimit {
    pub(super) fn new(chars: usize) -> Self {
        Self { chars, truncate: truncate_outcome }
    }

    pub(super) fn chars(self) -> usize {
        self.chars
    }

    pub(super) fn smallest(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        one.into_iter().chain(other).min_by_key(|limit| limit.chars)
    }

    pub(super) fn apply(self, outcome: Outcome) -> Outcome {
        (self.truncate)(outcome, self.chars)
    }
}
