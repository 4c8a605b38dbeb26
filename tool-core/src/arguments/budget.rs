//! The bounds of all work on a value and its schema. Both can come from untrusted parties.

use crate::content::MAX_JSON_DEPTH;

/// The maximum number of nested steps of a walk through a value and its schema: one per level, and one for what is in the last.
pub(crate) const MAX_DEPTH: usize = MAX_JSON_DEPTH + 1;

/// The average number of times that each byte of a value may be read: once per level, so that only alternatives can exceed it.
const READS_PER_BYTE: usize = MAX_DEPTH + 1;

/// The work that even the shortest value may cause, such as a lookup in a long `enum`.
const MIN_WORK: usize = 1 << 16;

/// The work that may still be done on a value. Nested alternatives multiply, so not all of them can be tried.
#[derive(Debug)]
pub(crate) struct Budget {
    remaining: usize,
}

impl Budget {
    pub(crate) fn for_text(text: &str) -> Self {
        let remaining = text.len().saturating_mul(READS_PER_BYTE).saturating_add(MIN_WORK);
        Self { remaining }
    }

    /// Spends the work of reading so many bytes. Returns `None` if too little remains, or if the value is too deep.
    pub(crate) fn spend(&mut self, bytes: usize, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.remaining = self.remaining.checked_sub(bytes.max(1))?;
        Some(())
    }
}
