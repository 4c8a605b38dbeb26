//! Tool names that model providers accept.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use super::text::hex;

/// The longest name that providers accept, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// Returns the name under which a tool is offered to models.
///
/// A name that providers accept is unchanged. Otherwise unsupported characters become `_`, and a hash of the original
/// name is appended. The result is therefore stable, and different names stay different.
pub(super) fn sanitize_tool_name(name: &str) -> Cow<'_, str> {
    let is_supported = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_supported) {
        return Cow::Borrowed(name);
    }
    let hash = hex(&Sha256::digest(name.as_bytes())[..4]);
    let replace = |letter: char| if letter.is_ascii() && is_supported(letter as u8) { letter } else { '_' };
    let head: String = name.chars().take(MAX_NAME_BYTES - hash.len() - 1).map(replace).collect();
    Cow::Owned(format!("{head}_{hash}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_names_are_unchanged() {
        for name in ["read_file", "a-b", "X1", &"a".repeat(64)] {
            assert_eq!(sanitize_tool_name(name), name);
        }
    }

    #[test]
    fn other_names_become_accepted_and_stay_distinct() {
        let long = "a".repeat(65);
        let table = [("fs.read", "fs_read_4074bc02"), ("fs/read", "fs_read_96379919"), ("", "_e3b0c442")];
        for (name, expected) in table {
            assert_eq!(sanitize_tool_name(name), expected);
        }
        assert_eq!(sanitize_tool_name(&long).len(), 64);
        assert_eq!(sanitize_tool_name("größe"), format!("gr__e_{}", hex(&Sha256::digest("größe")[..4])));
    }
}
