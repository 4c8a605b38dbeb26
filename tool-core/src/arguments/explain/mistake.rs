//! Mistakes in values.

use std::ops::Range;

/// A mistake in a value.
#[derive(Clone, Debug)]
pub(crate) struct Mistake {
    pub(crate) path: String,
    pub(crate) text: String,
    /// The position of the value in the text of the argument, or of the object in which it is missing.
    pub(super) span: Range<usize>,
    pub(super) kind: MistakeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MistakeKind {
    /// The schema does not allow the value.
    Wrong,
    /// A required member is missing.
    Missing,
    /// A required member is missing, but the object has another one that the type may know by that name.
    PossiblyMissing,
    /// An alternative may lack members, unless the type knows some of the others by their names.
    Possible,
    /// The type ignores the member.
    Ignored,
}

impl Mistake {
    /// Returns `true` if the value may be right.
    pub(super) fn is_uncertain(&self) -> bool {
        matches!(self.kind, MistakeKind::PossiblyMissing | MistakeKind::Possible)
    }

    /// Returns `true` unless the type refuses the value for other reasons.
    pub(crate) fn is_ignored_member(&self) -> bool {
        self.kind == MistakeKind::Ignored
    }

    /// Returns `true` if the mistake is in a part of the text, is the part itself, or contains it.
    pub(super) fn explains(&self, part: &Range<usize>) -> bool {
        let is_within = part.start <= self.span.start && self.span.end <= part.end;
        let contains = self.span.start <= part.start && part.end <= self.span.end;
        match self.kind {
            MistakeKind::Wrong => is_within || contains,
            MistakeKind::Missing | MistakeKind::Possible => is_within,
            MistakeKind::PossiblyMissing | MistakeKind::Ignored => false,
        }
    }
}
