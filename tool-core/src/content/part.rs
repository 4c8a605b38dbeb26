//! The parts of a content and their serialized form.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::Image;

/// One part of a [`Content`](crate::content::Content).
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Part {
    /// A text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image(Image),
    /// A value, sent to the model as JSON text.
    Json(JsonText),
}

impl Part {
    /// Returns the text or the JSON of the part, and `None` for an image.
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

/// Shows only the size, as conversations are private.
impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text { text } => write!(f, "Text({} bytes)", text.len()),
            Self::Image(image) => image.fmt(f),
            Self::Json(json) => json.fmt(f),
        }
    }
}

/// A value as compact JSON text: the model reads the text, and the application parses the value from it.
///
/// The value is stored as text to preserve every digit of its numbers.
///
/// ```
/// use tool_core::content::JsonText;
///
/// let json = JsonText::serialize(&[1, 2])?;
/// assert_eq!(json.as_str(), "[1,2]");
/// assert_eq!(json.parse::<Vec<u8>>()?, [1, 2]);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct JsonText(Box<str>);

impl JsonText {
    /// Serializes a value as JSON.
    ///
    /// # Errors
    ///
    /// Returns an error if the value has no JSON form, such as a map whose keys are not strings.
    pub fn serialize<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_string(value).map(|json| Self(json.into()))
    }

    /// Wraps a JSON text without changing it.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not valid JSON.
    pub fn from_json(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<IgnoredAny>(json)?;
        Ok(Self(json.into()))
    }

    /// Returns the JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses the text as a value of type `T`, such as [`Value`].
    ///
    /// # Errors
    ///
    /// Returns an error if the text does not match the type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }
}

impl From<Value> for JsonText {
    fn from(value: Value) -> Self {
        Self(value.to_string().into())
    }
}

/// Writes the JSON text.
impl fmt::Display for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Shows only the size.
impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.0.len())
    }
}

/// The serialized form of a part.
///
/// A separate type, because [`Part`] must not implement `Serialize`: a tool that returns a list of parts would then
/// compile, and send images as text.
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
            PartState::Json { json } => Self::Json(JsonText::from_json(&json)?),
        })
    }
}
