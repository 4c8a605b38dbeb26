//! Pictures.

use std::fmt;
use std::sync::Arc;

use base64::engine::general_purpose::{GeneralPurpose, PAD};
use base64::engine::{DecodePaddingMode, Engine};

/// Standard base64, with padding when it is written and with or without it when it is read.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    PAD.with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A picture: one that lies at a URL, or the bytes of one. Cloning shares it.
///
/// A tool may return one, and a user's message may hold some.
///
/// ```
/// use tool_core::{Content, Image, Message, Part, tool};
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
    /// The picture at a URL, which the provider fetches; or in a `data:` URL.
    #[must_use]
    pub fn from_url(url: impl Into<Arc<str>>) -> Self {
        Self { url: url.into() }
    }

    /// The bytes of a picture, and what they are, such as `image/png`; kept as base64.
    ///
    /// ```
    /// use tool_core::Image;
    ///
    /// let image = Image::from_bytes("image/gif", b"GIF89a");
    /// assert_eq!(image.url(), "data:image/gif;base64,R0lGODlh");
    /// assert_eq!(image.bytes().as_deref(), Some(&b"GIF89a"[..]));
    /// ```
    #[must_use]
    pub fn from_bytes(media_type: &str, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        let mut url = String::with_capacity(media_type.len() + bytes.len().div_ceil(3) * 4 + 13);
        url.extend(["data:", media_type, ";base64,"]);
        BASE64.encode_string(bytes, &mut url);
        Self::from_url(url)
    }

    /// Where the picture is; a `data:` URL if it was made of bytes.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What kind of picture it is, such as `image/png`, where a `data:` URL tells.
    #[must_use]
    pub fn media_type(&self) -> Option<&str> {
        let (head, _) = self.data()?;
        head.split(';').next().filter(|word| !word.is_empty())
    }

    /// The bytes as base64, if the picture is a `data:` URL of that form.
    #[must_use]
    pub fn base64(&self) -> Option<&str> {
        let (head, data) = self.data()?;
        let (_, encoding) = head.rsplit_once(';')?;
        encoding.eq_ignore_ascii_case("base64").then_some(data)
    }

    /// The bytes, if the picture is a `data:` URL of [`base64`](Self::base64).
    #[must_use]
    pub fn bytes(&self) -> Option<Vec<u8>> {
        BASE64.decode(self.base64()?).ok()
    }

    /// What stands before and behind the comma of a `data:` URL.
    fn data(&self) -> Option<(&str, &str)> {
        let (scheme, rest) = self.url.split_once(':')?;
        scheme.eq_ignore_ascii_case("data").then(|| rest.split_once(','))?
    }
}

/// Tells how much there is, not what: the address of a picture may be a secret, too.
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
    fn what_a_url_tells() {
        // The URL, its media type, its base64, its bytes.
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
    fn debug_tells_sizes() {
        let image = Image::from_bytes("image/png", [0, 1, 2, 3]);
        assert_eq!(format!("{image:?}"), "Image(8 bytes of base64)");
        assert_eq!(format!("{:?}", Image::from_url("https://a?key=1")), "Image(URL of 15 bytes)");
    }
}
