//! The difference between two lists of tools.

use std::fmt;

use serde_json::Value;

use super::text::truncate_name;

/// The longest excerpt of a changed value, in characters.
const MAX_EXCERPT_CHARS: usize = 300;

/// The difference between a server's tools and a [`Fingerprint`](super::Fingerprint). `Display` writes one line per change.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    pub(super) changes: Vec<Change>,
}

impl Difference {
    /// Returns the changes: of the instructions, then of tools sorted by name; added tools come last.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }
}

/// One change of a server's tools. Tools have the names that the server gives them.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// The instructions of the server changed.
    Instructions {
        /// The instructions in the fingerprint, if any.
        before: Option<String>,
        /// The current instructions, if any.
        after: Option<String>,
    },
    /// The server has a new tool.
    Added {
        /// The name of the tool.
        tool: String,
    },
    /// The server no longer has the tool.
    Removed {
        /// The name of the tool.
        tool: String,
    },
    /// The definition of the tool changed.
    Changed {
        /// The name of the tool.
        tool: String,
        /// The changed field, such as `description` or `inputSchema`.
        field: String,
        /// The value in the fingerprint, if any.
        before: Option<Value>,
        /// The current value, if any.
        after: Option<Value>,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, change) in self.changes.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            match change {
                Change::Instructions { before, after } => {
                    let (before, after) = (before.clone().map(Value::from), after.clone().map(Value::from));
                    write!(
                        f,
                        "the instructions were {}, are {}",
                        excerpt(before.as_ref(), after.as_ref()),
                        excerpt(after.as_ref(), before.as_ref())
                    )?;
                }
                Change::Added { tool } => write!(f, "the tool `{}` was added", truncate_name(tool))?,
                Change::Removed { tool } => write!(f, "the tool `{}` was removed", truncate_name(tool))?,
                Change::Changed { tool, field, before, after } => write!(
                    f,
                    "the tool `{}`: `{field}` was {}, is {}",
                    truncate_name(tool),
                    excerpt(before.as_ref(), after.as_ref()),
                    excerpt(after.as_ref(), before.as_ref())
                )?,
            }
        }
        Ok(())
    }
}

/// Formats the value, starting shortly before the first difference if it is long.
fn excerpt(value: Option<&Value>, other: Option<&Value>) -> String {
    let Some(value) = value else { return "absent".into() };
    let text = canonical(value);
    let other = other.map(canonical).unwrap_or_default();
    let same = text.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
    let start = if text.chars().count() <= MAX_EXCERPT_CHARS {
        0
    } else {
        same.saturating_sub(MAX_EXCERPT_CHARS / 5)
    };
    let part: String = text.chars().skip(start).take(MAX_EXCERPT_CHARS).collect();
    let head = if start > 0 { "…" } else { "" };
    let tail = if start + MAX_EXCERPT_CHARS < text.chars().count() { "…" } else { "" };
    format!("{head}{part}{tail}")
}

/// Formats a value as JSON with sorted keys and without whitespace.
pub(super) fn canonical(value: &Value) -> String {
    let mut value = value.clone();
    value.sort_all_objects();
    value.to_string()
}
