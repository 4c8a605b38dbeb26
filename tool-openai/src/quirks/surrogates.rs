//! Lone surrogates in JSON. Proxies that split a text anywhere send the two halves of a character in two chunks, and
//! serde_json rejects both.

use std::borrow::Cow;

/// Returns the JSON with a replacement character for each lone surrogate, or `None` if there is none.
pub(crate) fn try_repair_surrogates(json: &str) -> Option<String> {
    let unit = |json: &str| u16::from_str_radix(json.strip_prefix("\\u")?.get(..4)?, 16).ok();
    let is_high = |unit: u16| (0xd800..0xdc00).contains(&unit);
    let is_low = |unit: u16| (0xdc00..0xe000).contains(&unit);
    let (mut repaired, mut rest, mut is_repaired) = (String::new(), json, false);
    while let Some(escape) = memchr::memchr(b'\\', rest.as_bytes()) {
        repaired.push_str(&rest[..escape]);
        rest = &rest[escape..];
        let length = match unit(rest) {
            Some(high) if is_high(high) && rest.get(6..).and_then(unit).is_some_and(is_low) => 12,
            Some(half) if is_high(half) || is_low(half) => {
                repaired.push('\u{fffd}');
                is_repaired = true;
                rest = &rest[6..];
                continue;
            }
            Some(_) => 6,
            // An escaped character, such as a backslash, does not start another escape.
            None => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
        };
        repaired.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    repaired.push_str(rest);
    is_repaired.then_some(repaired)
}

/// Returns the JSON with a replacement character for each lone surrogate. For JSON whose parts are parsed later: a part that
/// cannot be parsed would be ignored.
pub(crate) fn repair_surrogates(json: &str) -> Cow<'_, str> {
    let has_surrogates = json.contains(r"\ud") || json.contains(r"\uD");
    let repaired = if has_surrogates { try_repair_surrogates(json) } else { None };
    repaired.map_or(Cow::Borrowed(json), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_lone_surrogates() {
        let table = [
            (r#""a""#, None),
            (r#""\n\ud83d\ude00\u00e4\\ud83d""#, None),
            (r#""\ud83d""#, Some("\"\u{fffd}\"")),
            (r#""\uDE00b""#, Some("\"\u{fffd}b\"")),
            (r#""\ud83d\ud83d\ude00\u0041""#, Some("\"\u{fffd}\\ud83d\\ude00\\u0041\"")),
            (r#""\\\ud83d \\""#, Some("\"\\\\\u{fffd} \\\\\"")),
            ("\\", None),
            ("\\u", None),
            ("\\u12\u{e4}", None),
            ("\\\u{e4}", None),
            ("\\ud83d\\u", Some("\u{fffd}\\u")),
        ];
        for (json, expected) in table {
            assert_eq!(try_repair_surrogates(json).as_deref(), expected, "{json}");
        }
    }
}
