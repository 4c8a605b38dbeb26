//! Images in messages and outputs.

use std::fmt;
use std::sync::Arc;

use crate::content::data_url;

/// An image, given by its URL or its bytes. Clones share the data.
///
/// A tool can return an image, and a user's message can contain images.
///
/// ```
/// use tool_core::content::{Content, Image, Part};
/// use tool_core::{Message, tool};
///
/// /// Draws a red dot.
/// #[tool]
/// fn dot() -> Image {
///     # const PNG: &[u8] = b"";
///     Image::from_bytes("image/png", PNG)
/// }
///
/// let photo = Image::from_url("https://example.org/cat.jpg");
/// let question = Content::from_iter([Part::from("What is this?"), Part::from(photo)]);
/// assert_eq!(Message::user(question).text(), "What is this?");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    url: Arc<str>,
}

impl Image {
    /// Creates an image from a URL, which the provider fetches, or from a `data:` URL.
    #[must_use]
    pub fn from_url(url: impl Into<Arc<str>>) -> Self {
        Self { url: url.into() }
    }

    /// Creates an image from its media type, such as `image/png`, and its bytes, which are stored as base64.
    ///
    /// ```
    /// use tool_core::content::Image;
    ///
    /// let image = Image::from_bytes("image/gif", b"GIF89a");
    /// assert_eq!(image.url(), "data:image/gif;base64,R0lGODlh");
    /// assert_eq!(image.bytes().as_deref(), Some(&b"GIF89a"[..]));
    /// ```
    #[must_use]
    pub fn from_bytes(media_type: &str, bytes: impl AsRef<[u8]>) -> Self {
        Self::from_url(data_url::encode(media_type, bytes.as_ref()))
    }

    /// Returns the URL, which is a `data:` URL for an image created from bytes.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the media type, such as `image/png`, if the image is a `data:` URL that states it.
    #[must_use]
    pub fn media_type(&self) -> Option<&str> {
        data_url::media_type(&self.url)
    }

    /// Returns the base64 data if the image is a base64 `data:` URL.
    #[must_use]
    pub fn base64(&self) -> Option<&str> {
        data_url::base64(&self.url)
    }

    /// Returns the bytes if the image is a `data:` URL with valid [`base64`](Self::base64).
    #[must_use]
    pub fn bytes(&self) -> Option<Vec<u8>> {
        data_url::bytes(&self.url)
    }
}

/// Shows only the size, as the image and its URL can be secret.
impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.base64() {
            Some(base64) => write!(f, "Image({} bytes of base64)", base64.len()),
            None => write!(f, "Image(URL of {} bytes)", self.url.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_data_urls() {
        // The URL, media type, base64 data and bytes.
        type Row = (&'static str, Option<&'static str>, Option<&'static str>, Option<&'static [u8]>);
        let table: [Row; 9] = [
            ("https://example.org/a.png", None, None, None),
            ("data:image/png;base64,AAEC", Some("image/png"), Some("AAEC"), Some(&[0, 1, 2])),
            ("DATA:image/png;BASE64,AAE=", Some("image/png"), Some("AAE="), Some(&[0, 1])),
            ("data:image/png;base64,AAE", Some("image/png"), Some("AAE"), Some(&[0, 1])),
            ("data:image/png;name=a;base64,", Some("image/png"), Some(""), Some(&[])),
            ("data:image/png;base64,A!", Some("image/png"), Some("A!"), None),
            ("data:image/svg+xml,<svg/>", Some("image/svg+xml"), None, None),
            ("data:;base64,AAEC", None, Some("AAEC"), Some(&[0, 1, 2])),
            ("data:", None, None, None),
        ];
        for (url, media_type, base64, bytes) in table {
            let image = Image::from_url(url);
            assert_eq!((image.media_type(), image.base64()), (media_type, base64), "{url}");
            assert_eq!(image.bytes().as_deref(), bytes, "{url}");
        }
    }

    #[test]
    fn debug_shows_only_sizes() {
        let image = Image::from_bytes("image/png", [0, 1, 2, 3]);
        assert_eq!(format!("{image:?}"), "Image(8 bytes of base64)");
        assert_eq!(format!("{:?}", Image::from_url("https://a?key=1")), "Image(URL of 15 bytes)");
    }
}
