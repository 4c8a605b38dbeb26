//! The content of messages, which both APIs accept in the same cases.

use std::borrow::Cow;

use tool_core::content::{Content, File, Image, Part};
use tool_http::client::Error;

/// A part of a message with images or files.
pub(crate) enum WirePart<'a> {
    Text(Cow<'a, str>),
    Image(&'a Image),
    File(&'a File),
}

/// Returns the parts of a content, except empty texts, which the APIs reject.
pub(crate) fn parts(content: &Content) -> Result<Vec<WirePart<'_>>, Error> {
    let parts = content.parts().iter().filter(|part| part.as_text() != Some(""));
    let parts = parts.map(|part| match (part, part.as_text()) {
        (Part::Image(image), _) => Ok(WirePart::Image(image)),
        (Part::File(file), _) => Ok(WirePart::File(file)),
        (_, Some(text)) => Ok(WirePart::Text(text.into())),
        (other, None) => Err(Error::request(format!("the API does not support this content: {other:?}"))),
    });
    parts.collect()
}

/// Returns the text of a system message.
pub(crate) fn system_text(content: &Content) -> Result<Cow<'_, str>, Error> {
    if has_media(content) {
        Err(Error::request("a system message can only contain text; put the rest into a user message"))
    } else {
        Ok(content.text())
    }
}

/// Returns `true` if a content has images or files.
pub(crate) fn has_media(content: &Content) -> bool {
    content.parts().iter().any(|part| part.as_text().is_none())
}

/// Returns the name of a file, which the APIs require with its data.
pub(crate) fn file_name(file: &File) -> &str {
    let by_type = || match file.media_type() {
        Some("application/pdf") => "file.pdf",
        _ => "file.txt",
    };
    file.name().unwrap_or_else(by_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_images_in_system_messages() {
        let image = Image::from_url("https://example.org/a.png");
        let error = system_text(&Content::from(Part::from(image))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a system message can only contain text; put the rest into a user message"
        );
    }
}
