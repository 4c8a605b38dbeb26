//! Why a tool cannot be made of a schema.

use std::fmt;

/// How much of a text is repeated, in characters.
const LONGEST_QUOTE: usize = 200;

/// Why no [`DynamicTool`](super::DynamicTool) can be made of a schema. It names the tool and the place in the schema.
#[derive(thiserror::Error)]
#[error("the schema of the tool `{tool}` cannot be used: {reason}")]
pub struct DynamicToolError {
    tool: String,
    reason: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    NoObject,
    Invalid,
    TooLarge,
    Reference,
}

impl DynamicToolError {
    /// The schema is not that of an object, but models give arguments by name.
    #[must_use]
    pub fn is_no_object(&self) -> bool {
        self.kind == Kind::NoObject
    }

    /// The schema is no JSON Schema of a draft that is known, or uses what is not supported.
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        self.kind == Kind::Invalid
    }

    /// The schema is larger or deeper than a tool's may be, or checking a value by it would take too long.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        self.kind == Kind::TooLarge
    }

    /// A `$ref` leads out of the schema, or nowhere.
    #[must_use]
    pub fn is_reference(&self) -> bool {
        self.kind == Kind::Reference
    }

    pub(super) fn new(tool: &str, Flaw { kind, reason }: Flaw) -> Self {
        Self { tool: cut(tool), reason, kind }
    }
}

/// The text, so that a `main` that returns the error shows it readably.
impl fmt::Debug for DynamicToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What is wrong with a schema.
pub(super) struct Flaw {
    kind: Kind,
    reason: String,
}

impl Flaw {
    pub(super) fn new(kind: Kind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }
}

/// A text that is not longer than can be read.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST_QUOTE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
