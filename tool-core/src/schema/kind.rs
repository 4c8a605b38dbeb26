//! The kinds of JSON values.

/// A kind of JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    String,
    Number,
    Boolean,
    Array,
    Object,
    Null,
}

impl Kind {
    /// Returns the kind of a value by the first byte of its text.
    pub(crate) fn of(text: &str) -> Option<Self> {
        Some(match text.as_bytes().first()? {
            b'"' => Self::String,
            b'-' | b'0'..=b'9' => Self::Number,
            b't' | b'f' => Self::Boolean,
            b'[' => Self::Array,
            b'{' => Self::Object,
            b'n' => Self::Null,
            _ => return None,
        })
    }

    /// Returns the name of the kind as a `type`. Integers have another one.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Array => "array",
            Self::Object => "object",
            Self::Null => "null",
        }
    }
}
