//! The content of messages and tool outputs: text, images, files and JSON.

pub(crate) mod depth;
pub(crate) mod printable;
mod data_url;
mod file;
mod image;
pub(crate) mod json;
mod part;
#[allow(clippy::module_inception, reason = "the folder holds the parts of the type")]
mod content;

use std::borrow::Cow;

pub use self::content::Content;
pub(crate) use self::depth::{MAX_JSON_DEPTH, MAX_SCHEMA_DEPTH};
pub use self::file::File;
pub use self::image::Image;
pub(crate) use self::json::JsonText;
pub(crate) use self::json::compact_json;
pub use self::part::Part;
pub(crate) use self::printable::printable;

/// Returns the beginning of a text with at most `max_chars` characters.
pub(crate) fn first_chars(text: &str, max_chars: usize) -> &str {
    let end = text.char_indices().nth(max_chars).map_or(text.len(), |(end, _)| end);
    &text[..end]
}

/// Returns a text with everything after the first `max_chars` characters replaced by an ellipsis.
pub(crate) fn abbreviate(text: &str, max_chars: usize) -> Cow<'_, str> {
    let first = first_chars(text, max_chars);
    if first.len() < text.len() { format!("{first}…").into() } else { text.into() }
}
