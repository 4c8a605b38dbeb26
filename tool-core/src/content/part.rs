//! The parts of a content and their serialized form.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::content::{File, Image, JsonText};

/// One part of a [`Content`](crate::content::Content).
#[derive(Clone, PartialEq, Eq)]
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
    /// A document, such as a PDF.
    File(File),
}

impl Part {
    /// Returns the text or the JSON of the part, and `None` for an image or a file.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            Self::Json(json) => Some(json.as_str()),
            Self::Image(_) | Self::File(_) => None,
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

impl From<File> for Part {
    fn from(file: File) -> Self {
        Self::File(file)
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
            Self::File(file) => file.fmt(f),
        }
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
    File(FileState<'a>),
}

/// The serialized form of a file, with either a URL or an id.
#[derive(Serialize, Deserialize)]
pub(super) struct FileState<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<Cow<'a, str>>,
}

impl<'a> From<&'a File> for FileState<'a> {
    fn from(file: &'a File) -> Self {
        let [url, id, name] = [file.url(), file.id(), file.name()].map(|text| text.map(Cow::Borrowed));
        Self { url, id, name }
    }
}

impl TryFrom<FileState<'_>> for File {
    type Error = serde_json::Error;

    fn try_from(state: FileState<'_>) -> Result<Self, serde_json::Error> {
        let file = match (state.url, state.id) {
            (Some(url), None) => Self::from_url(&*url),
            (None, Some(id)) => Self::from_id(&*id),
            _ => return Err(serde::de::Error::custom("a file has either `url` or `id`")),
        };
        Ok(match state.name {
            Some(name) => file.with_name(&*name),
            None => file,
        })
    }
}

impl<'a> From<&'a Part> for PartState<'a> {
    fn from(part: &'a Part) -> Self {
        match part {
            Part::Text { text } => Self::Text { text: text.into() },
            Part::Image(image) => Self::Image { url: image.url().into() },
            Part::Json(json) => Self::Json { json: json.as_str().into() },
            Part::File(file) => Self::File(file.into()),
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
            PartState::File(state) => Self::File(state.try_into()?),
        })
    }
}
