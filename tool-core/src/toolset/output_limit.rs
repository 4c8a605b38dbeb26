//! The limit on the output of calls.

use crate::tool::{Outcome, limit_outcome};

/// A limit on the characters of one output.
#[derive(Clone, Copy)]
pub(super) struct OutputLimit {
    chars: usize,
    /// A function, so that programs without a limit do not contain its code and the tables of Unicode.
    limit: fn(Outcome, usize, bool) -> Outcome,
}

impl PartialEq for OutputLimit {
    fn eq(&self, other: &Self) -> bool {
        self.chars == other.chars
    }
}

impl OutputLimit {
    pub(super) fn new(chars: usize) -> Self {
        Self { chars, limit: limit_outcome }
    }

    pub(super) fn chars(self) -> usize {
        self.chars
    }

    pub(super) fn smallest(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        one.into_iter().chain(other).min_by_key(|limit| limit.chars)
    }

    pub(super) fn apply(self, outcome: Outcome, is_stored: bool) -> Outcome {
        (self.limit)(outcome, self.chars, is_stored)
    }
}
