//! `data:` URLs, in which images and files are stored.

use base64::engine::general_purpose::{GeneralPurpose, PAD};
use base64::engine::{DecodePaddingMode, Engine};

/// Standard base64: encodes with padding, decodes with or without it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    PAD.with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Returns the `data:` URL of bytes with this media type.
pub(super) fn encode(media_type: &str, bytes: &[u8]) -> String {
    let mut url = String::with_capacity(media_type.len() + bytes.len().div_ceil(3) * 4 + 13);
    url.extend(["data:", media_type, ";base64,"]);
    BASE64.encode_string(bytes, &mut url);
    url
}

/// Returns the media type if the URL is a `data:` URL that states it.
pub(super) fn media_type(url: &str) -> Option<&str> {
    let (head, _) = split(url)?;
    head.split(';').next().filter(|word| !word.is_empty())
}

/// Returns the base64 data if the URL is a base64 `data:` URL.
pub(super) fn base64(url: &str) -> Option<&str> {
    let (head, data) = split(url)?;
    let (_, encoding) = head.rsplit_once(';')?;
    encoding.eq_ignore_ascii_case("base64").then_some(data)
}

/// Returns the bytes if the URL is a `data:` URL with valid base64.
pub(super) fn bytes(url: &str) -> Option<Vec<u8>> {
    BASE64.decode(base64(url)?).ok()
}

/// Splits a `data:` URL at its comma.
fn split(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once(':')?;
    scheme.eq_ignore_ascii_case("data").then(|| rest.split_once(','))?
}
