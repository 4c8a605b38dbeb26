//! Documents in messages and outputs.

use std::fmt;
use std::sync::Arc;

use crate::content::data_url;

/// A document for the model to read, such as a PDF or a text file: its bytes, its URL, or the id of a file that was uploaded to the
/// provider. Clones share the data.
///
/// Users' messages can contain files, and with some providers also the outputs of tools.
///
/// ```
/// use tool_core::content::{Content, File};
/// use tool_core::{Message, tool};
///
/// /// Returns the bill of a month.
/// #[tool]
/// fn bill(month: String) -> File {
///     # const PDF: &[u8] = b"";
///     File::from_bytes("application/pdf", PDF).with_name(format!("{month}.pdf"))
/// }
///
/// let contract = File::from_url("https://example.org/contract.pdf");
/// let question = Content::from("When does it end?").with_part(contract);
/// assert_eq!(question.files().count(), 1);
/// # let _ = Message::user(question);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct File(Arc<Inner>);

#[derive(PartialEq, Eq)]
struct Inner {
    source: FileSource,
    name: Option<Arc<str>>,
}

#[derive(Clone, PartialEq, Eq)]
enum FileSource {
    Url(Arc<str>),
    Id(Arc<str>),
}

impl File {
    /// Creates a file from its media type, such as `application/pdf` or `text/plain`, and its bytes, which are stored as base64.
    #[must_use]
    pub fn from_bytes(media_type: &str, bytes: impl AsRef<[u8]>) -> Self {
        Self::from_url(data_url::encode(media_type, bytes.as_ref()))
    }

    /// Creates a file from a URL, which the provider fetches, or from a `data:` URL.
    #[must_use]
    pub fn from_url(url: impl Into<Arc<str>>) -> Self {
        Self(Arc::new(Inner { source: FileSource::Url(url.into()), name: None }))
    }

    /// Creates a file from the id under which the provider stores it. Other providers do not find it.
    #[must_use]
    pub fn from_id(id: impl Into<Arc<str>>) -> Self {
        Self(Arc::new(Inner { source: FileSource::Id(id.into()), name: None }))
    }

    /// Sets the name, such as `report.pdf`, which some providers show to the model and some require.
    #[must_use]
    pub fn with_name(self, name: impl Into<Arc<str>>) -> Self {
        let source = self.0.source.clone();
        Self(Arc::new(Inner { source, name: Some(name.into()) }))
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// Returns the id if the provider stores the file.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        match &self.0.source {
            FileSource::Id(id) => Some(id),
            FileSource::Url(_) => None,
        }
    }

    /// Returns the URL, which is a `data:` URL for a file created from bytes, and `None` for one created from an id.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        match &self.0.source {
            FileSource::Url(url) => Some(url),
            FileSource::Id(_) => None,
        }
    }

    /// Returns the media type, such as `application/pdf`, if the file is a `data:` URL that states it.
    #[must_use]
    pub fn media_type(&self) -> Option<&str> {
        data_url::media_type(self.url()?)
    }

    /// Returns the base64 data if the file is a base64 `data:` URL.
    #[must_use]
    pub fn base64(&self) -> Option<&str> {
        data_url::base64(self.url()?)
    }

    /// Returns the bytes if the file is a `data:` URL with valid [`base64`](Self::base64).
    #[must_use]
    pub fn bytes(&self) -> Option<Vec<u8>> {
        data_url::bytes(self.url()?)
    }

    /// Returns a short description for people: the name, the media type or the address, without data.
    pub(crate) fn label(&self) -> &str {
        let address = || self.id().or_else(|| self.url().filter(|_| self.base64().is_none()));
        self.name().or_else(|| self.media_type()).or_else(address).unwrap_or("data")
    }
}

/// Shows only the size, as the file and its URL can be secret.
impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0.source, self.base64()) {
            (FileSource::Id(_), _) => f.write_str("File(uploaded)"),
            (_, Some(base64)) => write!(f, "File({} bytes of base64)", base64.len()),
            (FileSource::Url(url), None) => write!(f, "File(URL of {} bytes)", url.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_one_source() {
        let file = File::from_bytes("text/plain", "tides").with_name("tides.txt");
        assert_eq!(
            (file.media_type(), file.name(), file.id()),
            (Some("text/plain"), Some("tides.txt"), None)
        );
        assert_eq!(file.bytes().as_deref(), Some(&b"tides"[..]));
        let file = File::from_id("file_1");
        assert_eq!((file.id(), file.url(), file.bytes()), (Some("file_1"), None, None));
        let file = File::from_url("https://example.org/a.pdf");
        assert_eq!((file.url(), file.media_type()), (Some("https://example.org/a.pdf"), None));
    }

    #[test]
    fn debug_shows_only_sizes() {
        let table = [
            (File::from_bytes("text/plain", "secret"), "File(8 bytes of base64)", "text/plain"),
            (File::from_url("https://a?key=1"), "File(URL of 15 bytes)", "https://a?key=1"),
            (File::from_id("secret").with_name("a.pdf"), "File(uploaded)", "a.pdf"),
        ];
        for (file, debug, label) in table {
            assert_eq!((format!("{file:?}").as_str(), file.label()), (debug, label));
        }
    }
}
