//! What a message holds.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What a message or an output holds: a text, or parts of several kinds.
///
/// ```
/// use tool_core::Content;
///
/// let content = Content::from("good morning");
/// assert_eq!(content.text(), "good morning");
/// ```
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Content(Repr);

// Nearly all content is one text, which then needs no list.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Repr {
    Text(String),
    Parts(Vec<Part>),
}

/// One part of a [`Content`].
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Part {
    /// Words.
    Text {
        /// The words.
        text: String,
    },
}

impl Content {
    /// The text of all parts, one after another.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        match &self.0 {
            Repr::Text(text) => Cow::Borrowed(text),
            Repr::Parts(parts) => Cow::Owned(parts.iter().map(|Part::Text { text }| &**text).collect()),
        }
    }

    /// How long the text is, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Text(text) => text.len(),
            Repr::Parts(parts) => parts.iter().map(|Part::Text { text }| text.len()).sum(),
        }
    }

    /// There is no text.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self(Repr::Text(text))
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl FromIterator<Part> for Content {
    fn from_iter<I: IntoIterator<Item = Part>>(parts: I) -> Self {
        Self(Repr::Parts(parts.into_iter().collect()))
    }
}

/// The text of all parts.
impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// Tells how much there is, not what: conversations are private.
impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({} bytes)", self.len())
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Text { text } = self;
        write!(f, "Text({} bytes)", text.len())
    }
}
