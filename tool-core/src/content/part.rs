//! The parts of a content, and how they are kept.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::Image;

/// One part of a [`Content`](crate::Content).
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Part {
    /// Words.
    Text {
        /// The words.
        text: String,
    },
    /// A picture.
    Image(Image),
    /// A value, which the model reads as its JSON.
    Json(JsonText),
}

impl Part {
    /// What a model reads of the part: the words, or the JSON. Nothing of a picture.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            Self::Json(json) => Some(json.as_str()),
            Self::Image(_) => None,
        }
    }
}

impl From<String> for Part {
    fn from(text: String) -> Self {
        Self::Text { text }
    }
}

impl From<&str> for Part {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl From<Image> for Part {
    fn from(image: Image) -> Self {
        Self::Image(image)
    }
}

impl From<JsonText> for Part {
    fn from(json: JsonText) -> Self {
        Self::Json(json)
    }
}

/// Tells how much there is, not what: conversations are private.
impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text { text } => write!(f, "Text({} bytes)", text.len()),
            Self::Image(image) => image.fmt(f),
            Self::Json(json) => json.fmt(f),
        }
    }
}

/// A value as its compact JSON: the model reads the text, the application reads the value from it.
///
/// It is kept as text, so that no digit of a number changes on the way.
///
/// ```
/// use tool_core::JsonText;
///
/// let json = JsonText::of(&[1, 2])?;
/// assert_eq!(json.as_str(), "[1,2]");
/// assert_eq!(json.parse::<Vec<u8>>()?, [1, 2]);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct JsonText(Box<str>);

impl JsonText {
    /// The JSON of a value.
    ///
    /// # Errors
    ///
    /// The value has no JSON, such as a map whose keys are no strings.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_string(value).map(|json| Self(json.into()))
    }

    /// A text that is JSON already, as it is.
    ///
    /// # Errors
    ///
    /// It is no JSON.
    pub fn checked(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<IgnoredAny>(json)?;
        Ok(Self(json.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value, as any type that can be read from it; a [`Value`] for one.
    ///
    /// # Errors
    ///
    /// The value is not of that type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }
}

impl From<Value> for JsonText {
    fn from(value: Value) -> Self {
        Self(value.to_string().into())
    }
}

/// The text.
impl fmt::Display for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Tells how much there is, not what.
impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.0.len())
    }
}

/// A part as it is kept.
///
/// A type of its own, so that the parts themselves cannot be serialised: a tool that returns a list of them
/// is refused, where it would send a picture as text.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum PartState<'a> {
    Text { text: Cow<'a, str> },
    Image { url: Cow<'a, str> },
    Json { json: Cow<'a, str> },
}

impl<'a> From<&'a Part> for PartState<'a> {
    fn from(part: &'a Part) -> Self {
        match part {
            Part::Text { text } => Self::Text { text: text.into() },
            Part::Image(image) => Self::Image { url: image.url().into() },
            Part::Json(json) => Self::Json { json: json.as_str().into() },
        }
    }
}

impl TryFrom<PartState<'_>> for Part {
    type Error = serde_json::Error;

    fn try_from(state: PartState<'_>) -> Result<Self, serde_json::Error> {
        Ok(match state {
            PartState::Text { text } => Self::from(text.into_owned()),
            PartState::Image { url } => Self::from(Image::from_url(&*url)),
            PartState::Json { json } => Self::Json(JsonText::checked(&json)?),
        })
    }
}
