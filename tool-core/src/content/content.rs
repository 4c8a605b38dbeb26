//! The content of a message.

use std::borrow::Cow;
use std::fmt;
use std::slice;

use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::part::PartState;
use crate::content::{File, Image, Part};

/// The content of a message or of a tool's output: a text, or a list of parts.
///
/// ```
/// use tool_core::content::{Content, Image};
///
/// let content = Content::from("good morning");
/// assert_eq!(content.text(), "good morning");
///
/// let photo = Image::from_url("https://example.org/cat.jpg");
/// let content = Content::from("What is this?").with_part(photo);
/// assert_eq!(content.parts().len(), 2);
/// assert_eq!(content.text(), "What is this?");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Content(Repr);

// Nearly all content is a single text, which needs no list.
#[derive(Clone, PartialEq, Eq)]
enum Repr {
    One(Part),
    Parts(Box<[Part]>),
}

impl Content {
    /// Returns the parts in order. A plain text is one part.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        match &self.0 {
            Repr::One(part) => slice::from_ref(part),
            Repr::Parts(parts) => parts,
        }
    }

    /// Returns this content with a part appended.
    #[must_use]
    pub fn with_part(self, part: impl Into<Part>) -> Self {
        self.into_parts().into_iter().chain([part.into()]).collect()
    }

    pub(crate) fn into_parts(self) -> Vec<Part> {
        match self.0 {
            Repr::One(part) => vec![part],
            Repr::Parts(parts) => parts.into(),
        }
    }

    /// Returns the images among the parts.
    pub fn images(&self) -> impl Iterator<Item = &Image> {
        self.parts().iter().filter_map(|part| match part {
            Part::Image(image) => Some(image),
            _ => None,
        })
    }

    /// Returns the files among the parts.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.parts().iter().filter_map(|part| match part {
            Part::File(file) => Some(file),
            _ => None,
        })
    }

    /// Returns the concatenated text of all parts. Each [`JsonText`](crate::provider::JsonText) is on lines of its own.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        match &self.0 {
            Repr::One(part) => Cow::Borrowed(part.as_text().unwrap_or_default()),
            Repr::Parts(_) => Cow::Owned(self.texts().collect()),
        }
    }

    /// Returns the length of the text in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.texts().map(str::len).sum()
    }

    /// Returns `true` if there is neither text nor an image or a file.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.parts().iter().all(|part| part.as_text().is_some())
    }

    /// Writes the size of the content, for `Debug`.
    pub(crate) fn write_size(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())?;
        for (count, noun) in [(self.images().count(), "image"), (self.files().count(), "file")] {
            match count {
                0 => {}
                1 => write!(f, ", 1 {noun}")?,
                _ => write!(f, ", {count} {noun}s")?,
            }
        }
        Ok(())
    }

    /// Returns the strings whose concatenation is the text.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let mut is_after_json = None;
        self.parts()
            .iter()
            .filter_map(|part| Some((part.as_text()?, matches!(part, Part::Json(_)))))
            .flat_map(move |(text, is_json)| {
                let breaks = is_after_json.is_some_and(|is_after_json| is_after_json || is_json);
                is_after_json = Some(is_json);
                [if breaks { "\n" } else { "" }, text]
            })
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::from(Part::from(text))
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl From<&String> for Content {
    fn from(text: &String) -> Self {
        Self::from(text.to_owned())
    }
}

impl From<Part> for Content {
    fn from(part: Part) -> Self {
        Self(Repr::One(part))
    }
}

impl FromIterator<Part> for Content {
    fn from_iter<I: IntoIterator<Item = Part>>(parts: I) -> Self {
        let mut parts: Vec<_> = parts.into_iter().collect();
        match parts.pop() {
            Some(only) if parts.is_empty() => Self::from(only),
            last => {
                parts.extend(last);
                Self(Repr::Parts(parts.into()))
            }
        }
    }
}

/// Writes the text of all parts.
impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// Shows only the size, as conversations are private.
impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content(")?;
        self.write_size(f)?;
        f.write_str(")")
    }
}

/// Serializes a plain text as a string and anything else as a list of parts.
impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Repr::One(Part::Text { text }) => serializer.serialize_str(text),
            _ => serializer.collect_seq(self.parts().iter().map(PartState::from)),
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a list of parts")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Content, E> {
        Ok(Content::from(text))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Content, E> {
        Ok(Content::from(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Content, A::Error> {
        let mut read = Vec::new();
        while let Some(part) = parts.next_element::<PartState<'_>>()? {
            read.push(Part::try_from(part).map_err(A::Error::custom)?);
        }
        Ok(Content::from_iter(read))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::content::JsonText;

    fn image() -> Part {
        Part::from(Image::from_bytes("image/png", b"secret"))
    }

    fn value(value: serde_json::Value) -> Part {
        Part::from(JsonText::from(value))
    }

    #[test]
    fn concatenates_the_text_of_parts() {
        let table = [
            (vec![], "", true),
            (vec!["".into()], "", true),
            (vec!["a".into(), "b".into()], "ab", false),
            (vec![image()], "", false),
            (vec!["a".into(), image(), "b".into()], "ab", false),
            (vec![value(json!(1)), value(json!(2))], "1\n2", false),
            (vec!["a".into(), image(), value(json!({})), "b".into(), "c".into()], "a\n{}\nbc", false),
        ];
        for (parts, text, is_empty) in table {
            let content = Content::from_iter(parts);
            assert_eq!(content.text(), text);
            assert_eq!((content.len(), content.is_empty()), (text.len(), is_empty), "{text}");
        }
    }

    #[test]
    fn debug_shows_only_sizes() {
        let table = [
            (Content::from("secret"), "Content(6 bytes)"),
            (Content::from(image()), "Content(0 bytes, 1 image)"),
            (Content::from_iter([image(), "secret".into(), image()]), "Content(6 bytes, 2 images)"),
            (
                Content::from_iter([image(), File::from_id("secret").into()]),
                "Content(0 bytes, 1 image, 1 file)",
            ),
        ];
        for (content, expected) in table {
            assert_eq!(format!("{content:?}"), expected);
        }
        let parts = [image(), "secret".into(), value(json!("secret"))];
        assert_eq!(format!("{parts:?}"), "[Image(8 bytes of base64), Text(6 bytes), Json(8 bytes)]");
    }

    #[test]
    fn serializes_and_deserializes() {
        let table = [
            (json!("a"), Content::from("a")),
            (json!([{ "type": "text", "text": "a" }]), Content::from("a")),
            (json!([]), Content::from_iter([])),
            (
                json!([{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }]),
                Content::from_iter(["a".into(), "b".into()]),
            ),
            (
                json!([{ "type": "image", "url": "data:image/png;base64,c2VjcmV0" }, { "type": "json", "json": "[0.1]" }]),
                Content::from_iter([image(), value(json!([0.1]))]),
            ),
            (
                json!([{ "type": "file", "id": "f1", "name": "a.pdf" }, { "type": "file", "url": "https://example.org/a.pdf" }]),
                Content::from_iter([
                    File::from_id("f1").with_name("a.pdf").into(),
                    File::from_url("https://example.org/a.pdf").into(),
                ]),
            ),
        ];
        for (state, content) in table {
            let read: Content = serde_json::from_value(state.clone()).unwrap();
            assert_eq!(read, content, "{state}");
            let written = serde_json::to_string(&content).unwrap();
            assert_eq!(serde_json::from_str::<Content>(&written).unwrap(), content, "{written}");
        }
        let broken = [
            (json!(1), "invalid type: integer `1`, expected a string or a list of parts"),
            (
                json!([{ "type": "sound" }]),
                "unknown variant `sound`, expected one of `text`, `image`, `json`, `file`",
            ),
            (json!([{ "type": "file", "name": "a" }]), "a file has either `url` or `id`"),
            (json!([{ "type": "json", "json": "{" }]), "EOF while parsing an object at line 1 column 1"),
        ];
        for (state, expected) in broken {
            assert_eq!(serde_json::from_value::<Content>(state).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn is_no_larger_than_a_string() {
        assert_eq!(size_of::<Content>(), size_of::<String>());
    }
}
