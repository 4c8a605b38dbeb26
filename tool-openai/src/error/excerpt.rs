//! Excerpts of what a server sent.

use tool_core::content::printable;

/// The number of characters of the API's message that are displayed. Some servers send whole stack traces.
pub(super) const MAX_MESSAGE_CHARS: usize = 300;

/// Returns the start of a text, printable and on one line.
pub(super) fn excerpt(text: &str, max_chars: usize) -> String {
    let mut words = printable(text).split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = words.char_indices().nth(max_chars) {
        words.truncate(end);
        words.push('…');
    }
    words
}
