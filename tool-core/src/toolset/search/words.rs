//! From text to the terms that the index compares: words and their stems.
//!
//! A library's stemmer (`rust-stemmers`) found no tool more than these few rules in the evaluation of `tests/tools/search`, because
//! the index also compares the letters of words.

/// The characters of a word that are read; the rest of a longer one is ignored.
const MAX_WORD_CHARS: usize = 32;

/// Words that are in questions of every kind.
const STOP_WORDS: &[&str] = &[
    "a", "about", "also", "an", "and", "are", "as", "at", "be", "been", "but", "by", "can", "could", "did",
    "do", "does", "for", "from", "had", "has", "have", "he", "her", "his", "how", "i", "if", "in", "is",
    "it", "its", "may", "me", "might", "my", "no", "not", "of", "on", "or", "our", "please", "she", "should",
    "so", "than", "that", "the", "their", "them", "then", "there", "these", "they", "this", "those", "to",
    "us", "was", "we", "were", "what", "which", "why", "will", "with", "would", "you", "your",
];

/// Endings that do not change what a word is about, longest first where one contains the other.
const ENDINGS: &[&str] = &[
    "ational", "ation", "ator", "ate", "ional", "ion", "ment", "ness", "ity", "al", "er", "or", "ly", "ive",
    "ic",
];

/// Returns the terms of a text in its order, without the words that every question has, and without numbers: those in a question are
/// arguments, and those in a name (`Hotels_4`) say nothing about the tool.
pub(super) fn terms(text: &str) -> impl Iterator<Item = String> {
    let mut terms = Vec::new();
    let runs = text.split(|c: char| !c.is_alphanumeric());
    for run in runs.filter(|run| run.contains(char::is_alphabetic)) {
        for word in split_run(run) {
            let word: String = word.chars().take(MAX_WORD_CHARS).flat_map(char::to_lowercase).collect();
            if has_no_spaces(&word) {
                terms.extend(pairs(&word));
            } else if STOP_WORDS.binary_search(&&*word).is_err() {
                terms.push(stem(&word));
            }
        }
    }
    terms.into_iter()
}

/// Returns the first word of a name, as written.
pub(super) fn first_word(name: &str) -> &str {
    let run = name.split(|c: char| !c.is_alphanumeric()).find(|run| !run.is_empty());
    run.and_then(|run| split_run(run).next()).unwrap_or(name)
}

/// Splits letters and digits where a name has several words: `getHTTPStatus2` is `get`, `HTTP`, `Status` and `2`.
fn split_run(run: &str) -> impl Iterator<Item = &str> {
    let chars: Vec<_> = run.char_indices().collect();
    let mut starts = vec![0];
    for (position, pair) in chars.windows(2).enumerate() {
        let [(_, before), (start, now)] = *pair else { continue };
        let next = chars.get(position + 2).is_some_and(|(_, next)| next.is_lowercase());
        let begins_word = now.is_uppercase() && (before.is_lowercase() || before.is_uppercase() && next);
        if begins_word || before.is_numeric() != now.is_numeric() {
            starts.push(start);
        }
    }
    let ends: Vec<_> = starts.iter().copied().skip(1).chain([run.len()]).collect();
    starts.into_iter().zip(ends).map(|(start, end)| &run[start..end])
}

/// Returns `true` for a script that writes words without spaces, or with endings that change.
fn has_no_spaces(word: &str) -> bool {
    word.contains(
        |c: char| matches!(c, '\u{2e80}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' | '\u{e00}'..='\u{e7f}'),
    )
}

/// Returns the pairs of neighbouring characters, or the only character.
fn pairs(word: &str) -> Vec<String> {
    let chars: Vec<_> = word.chars().collect();
    match chars.len() {
        1 => vec![word.to_owned()],
        _ => chars.windows(2).map(|pair| pair.iter().collect()).collect(),
    }
}

/// Removes the endings of an English word.
fn stem(word: &str) -> String {
    if word.len() <= 3 || !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return word.to_owned();
    }
    let mut stem = match word.strip_suffix("ies") {
        Some(start) => format!("{start}y"),
        None if word.ends_with("sses") => word[..word.len() - 2].to_owned(),
        None if word.ends_with('s') && !["ss", "us", "is"].iter().any(|end| word.ends_with(end)) => {
            word[..word.len() - 1].to_owned()
        }
        None => word.to_owned(),
    };
    let has_vowel = |start: &str| start.contains(['a', 'e', 'i', 'o', 'u', 'y']);
    if let Some(start) = ["ing", "ed"].iter().find_map(|end| stem.strip_suffix(end))
        && start.len() >= 3
        && has_vowel(start)
    {
        let length = start.len();
        stem.truncate(length);
        let bytes = stem.as_bytes();
        let is_doubled = length > 3 && bytes[length - 1] == bytes[length - 2];
        if is_doubled && !stem.ends_with(['l', 's', 'z']) {
            stem.pop();
        } else if ["at", "bl", "iz"].iter().any(|end| stem.ends_with(end)) {
            stem.push('e');
        }
    }
    let start = ENDINGS.iter().find_map(|end| stem.strip_suffix(end).filter(|start| start.len() >= 4));
    if let Some(length) = start.map(str::len) {
        stem.truncate(length);
    }
    if stem.len() > 4 && stem.ends_with('e') {
        stem.pop();
    }
    if stem.len() > 3 && stem.ends_with('y') {
        stem.pop();
        stem.push('i');
    }
    stem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_names_and_texts_into_terms() {
        let table: &[(&str, &[&str])] = &[
            ("get_current_weather", &["get", "current", "weath"]),
            ("getHTTPStatus2", &["get", "http", "status", "2"]),
            ("files.list-all", &["file", "list", "all"]),
            ("Hotels_4_mp3", &["hotel", "mp", "3"]),
            ("What is the price of it?", &["pric"]),
            ("Cities, bookings and BOOKED", &["citi", "book", "book"]),
            ("naïve ÜBER", &["naïve", "über"]),
            ("北京天气 x", &["北京", "京天", "天气", "x"]),
            ("水", &["水"]),
            ("", &[]),
            (" \u{0}\u{200b}—", &[]),
        ];
        for (text, expected) in table {
            assert_eq!(terms(text).collect::<Vec<_>>(), *expected, "{text}");
        }
    }

    #[test]
    fn forms_of_a_word_have_one_stem() {
        let table = [
            ["calculate", "calculates", "calculating", "calculation"],
            ["convert", "converts", "converting", "converted"],
            ["recipe", "recipes", "recipe", "recipes"],
            ["stop", "stopped", "stopping", "stops"],
            ["currency", "currencies", "currency", "currencies"],
        ];
        for forms in table {
            assert!(forms.iter().all(|form| stem(form) == stem(forms[0])), "{:?}", forms.map(stem));
        }
    }

    #[test]
    fn stop_words_are_sorted() {
        assert!(STOP_WORDS.is_sorted());
    }
}
