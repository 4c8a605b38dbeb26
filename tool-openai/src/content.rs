//! The content of messages, which both APIs accept in the same cases.

use std::borrow::Cow;

use tool_core::content::{Content, Image, Part};

use crate::error::Error;

/// A part of a message with images.
pub(crate) enum WirePart<'a> {
    Text(Cow<'a, str>),
    Image(&'a Image),
}

/// Returns the parts of a content, except empty texts, which the APIs reject.
pub(crate) fn parts(content: &Content) -> Result<Vec<WirePart<'_>>, Error> {
    let parts = content.parts().iter().filter(|part| part.as_text() != Some(""));
    let parts = parts.map(|part| match (part, part.as_text()) {
        (Part::Image(image), _) => Ok(WirePart::Image(image)),
        (_, Some(text)) => Ok(WirePart::Text(text.into())),
        (other, None) => Err(Error::request(format!("the API does not support this content: {other:?}"))),
    });
    parts.collect()
}

/// Returns the text of a system message.
pub(crate) fn system_text(content: &Content) -> Result<Cow<'_, str>, Error> {
    if has_images(content) {
        Err(Error::request("a system message cannot contain an image; put it into a user message"))
    } else {
        Ok(content.text())
    }
}

pub(crate) fn has_images(content: &Content) -> bool {
    content.images().next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_images_in_system_messages() {
        let image = Image::from_url("https://example.org/a.png");
        let error = system_text(&Content::from(Part::from(image))).unwrap_err();
        assert!(error.to_string().ends_with("put it into a user message"), "{error}");
    }
}
