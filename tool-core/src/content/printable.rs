//! Texts of models, tools and servers that a person reads.

use std::borrow::Cow;

/// Writes characters that a person cannot see, or that change how other characters appear, as escapes such as `\u{202e}`.
///
/// These are control characters, Unicode's [default ignorable] characters (of zero width, marks of direction, tags, fillers),
/// separators of lines and paragraphs, and noncharacters. Line breaks and tabs remain. All other characters remain as well, so
/// text of any script is readable: a joiner after a letter of a script that uses it (Arabic, Persian, Hindi), and the
/// joiners and variation selectors of emojis.
///
/// Use it for every text that another party wrote and a person decides by. [`ToolCall`](crate::ToolCall)'s `Display` does.
///
/// ```
/// use tool_core::provider::printable;
///
/// assert_eq!(printable("größe 東京 👩‍🚀\n"), "größe 東京 👩‍🚀\n");
/// assert_eq!(printable("invoice\u{202e}fdp.exe"), r"invoice\u{202e}fdp.exe");
/// ```
///
/// [default ignorable]: https://www.unicode.org/reports/tr44/#Default_Ignorable_Code_Point
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    let (mut shown, mut copied, mut last) = (String::new(), 0, None);
    for (index, character) in text.char_indices() {
        let end = index + character.len_utf8();
        if is_hidden(last, character, &text[end..]) {
            shown.push_str(&text[copied..index]);
            // A line break of two characters remains one.
            if !(character == '\r' && text[end..].starts_with('\n')) {
                shown.extend(character.escape_unicode());
            }
            copied = end;
        }
        last = Some(character);
    }
    if copied == 0 { text.into() } else { (shown + &text[copied..]).into() }
}

/// Returns `true` if a person does not see the character between the one before it and the rest.
fn is_hidden(last: Option<char>, character: char, rest: &str) -> bool {
    let is_emoji = |character| {
        matches!(character, '©' | '®' | '‼' | '⁉' | '\u{2100}'..='\u{2bff}' | '〰' | '〽' | '㊗' | '㊙'
            | '\u{1f000}'..='\u{1faff}')
    };
    // The scripts from Arabic to Sinhala, Khmer and Mongolian.
    let is_joined = |character| matches!(character, '\u{600}'..='\u{dff}' | '\u{1780}'..='\u{18af}');
    match character {
        '\n' | '\t' => false,
        '\u{200c}' | '\u{200d}' => !last.is_some_and(|c| is_joined(c) || is_emoji(c) || c == '\u{fe0f}'),
        // U+20E3 makes a keycap of a digit.
        '\u{fe0e}' | '\u{fe0f}' => !last.is_some_and(is_emoji) && !rest.starts_with('\u{20e3}'),
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' => true,
        '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => true,
        '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0d}' | '\u{feff}' | '\u{ffa0}' => true,
        '\u{fff0}'..='\u{fffb}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' => true,
        '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}' | '\u{fdd0}'..='\u{fdef}' => true,
        _ => character.is_control() || u32::from(character) & 0xfffe == 0xfffe,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_what_a_person_does_not_see() {
        let table = [
            ("a\u{1b}[2J\rb\0\u{9b}", r"a\u{1b}[2J\u{d}b\u{0}\u{9b}"),
            ("\u{202e}a\u{2066}b\u{61c}", r"\u{202e}a\u{2066}b\u{61c}"),
            (
                "pass\u{200b}w\u{200d}o\u{200c}r\u{2060}d\u{feff}",
                r"pass\u{200b}w\u{200d}o\u{200c}r\u{2060}d\u{feff}",
            ),
            ("a\u{e0041}\u{e0100}\u{fe0f}\u{ad}", r"a\u{e0041}\u{e0100}\u{fe0f}\u{ad}"),
            (
                "\u{3164}\u{115f}\u{ffa0}\u{2028}\u{ffff}\u{fff9}",
                r"\u{3164}\u{115f}\u{ffa0}\u{2028}\u{ffff}\u{fff9}",
            ),
            ("👍\u{200d}\u{200d}\u{fe0f}\u{fe0f}", "👍\u{200d}\\u{200d}\\u{fe0f}\\u{fe0f}"),
            ("東\u{200d}京", r"東\u{200d}京"),
            ("a\r\nb\n\r", "a\nb\n\\u{d}"),
        ];
        for (text, expected) in table {
            assert_eq!(printable(text), expected);
        }
    }

    #[test]
    fn texts_of_all_scripts_remain_readable() {
        let texts = [
            "größe 東京 서울 Ελλάδα Москва עברית ไทย e\u{301} 10\u{a0}000\u{3000}\n\t",
            "می\u{200c}خواهم",
            "क\u{94d}\u{200d}ष ശ\u{d4d}\u{200d}രീ",
            "👩\u{200d}🚀 👨🏽\u{200d}👩🏽\u{200d}👧 ❤\u{fe0f}\u{200d}🔥 ☎\u{fe0e} ©\u{fe0f} 1\u{fe0f}\u{20e3} 🇩🇪",
        ];
        for text in texts {
            assert!(matches!(printable(text), Cow::Borrowed(shown) if shown == text), "{text:?}");
        }
    }
}
