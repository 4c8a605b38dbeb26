//! Names that models take, of names that servers give.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

/// The longest name that providers take, in bytes.
const LONGEST_NAME: usize = 64;

/// How much of a name that may come from anywhere is repeated, in characters.
const LONGEST_QUOTE: usize = 100;

/// The name that a tool is offered by: its own if providers take it. Otherwise what they do not take becomes `_`, and
/// the hash of the server's name stands behind it, so that two names stay two and one stays the same for ever.
pub(super) fn offered_name(name: &str) -> Cow<'_, str> {
    let is_taken = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_taken) {
        return Cow::Borrowed(name);
    }
    let hash = hex(&Sha256::digest(name.as_bytes())[..4]);
    let taken = |letter: char| if letter.is_ascii() && is_taken(letter as u8) { letter } else { '_' };
    let head: String = name.chars().take(LONGEST_NAME - hash.len() - 1).map(taken).collect();
    Cow::Owned(format!("{head}_{hash}"))
}

/// Bytes in hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A name that is not longer than can be read.
pub(super) fn cut(name: &str) -> String {
    match name.char_indices().nth(LONGEST_QUOTE) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_models_take_stay() {
        for name in ["read_file", "a-b", "X1", &"a".repeat(64)] {
            assert_eq!(offered_name(name), name);
        }
    }

    #[test]
    fn other_names_become_such_that_differ() {
        let long = "a".repeat(65);
        let table = [("fs.read", "fs_read_4074bc02"), ("fs/read", "fs_read_96379919"), ("", "_e3b0c442")];
        for (name, expected) in table {
            assert_eq!(offered_name(name), expected);
        }
        assert_eq!(offered_name(&long).len(), 64);
        assert_eq!(offered_name("größe"), format!("gr__e_{}", hex(&Sha256::digest("größe")[..4])));
    }
}
