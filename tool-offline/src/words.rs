//! Relates words: stems, a few synonyms, and words without a meaning of their own.

/// Groups of words with one meaning.
const SYNONYMS: &str = "sum add addition plus total +|subtract subtraction minus difference -|\
    multiply multiplication product times * ×|divide division quotient / ÷|sqrt root|weather forecast|price cost|\
    delete remove cancel|email mail e-mail|book reserve reservation|file document";

/// Words that questions and descriptions of every kind contain, among them verbs that request something without saying what.
const STOP_WORDS: &str = " a an the this that these those it its they them their there here of in on at for from by with without \
    and or but if then than as into onto to out up down between below above through i me my we us our you your is are was were be \
    do does did have has had can could would will should may might must what which who when where why how many much \
    not no please value values given result number numbers two all each named called using after first next finally let s \
    get fetch find show tell give display return returns retrieve list calculate compute determine check look see know \
    want need take count search current like about so also ";

/// The prepositions that introduce a value.
pub(crate) const PREPOSITIONS: [&str; 10] =
    ["in", "of", "for", "from", "to", "at", "on", "by", "about", "with"];

/// The words that refer to an earlier result.
pub(crate) const PRONOUNS: [&str; 5] = ["that", "it", "its", "this", "result"];

pub(crate) fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.contains(&format!(" {} ", word.to_lowercase()))
}

/// Returns what all forms and synonyms of a word have in common.
pub(crate) fn key(word: &str) -> String {
    let lower = word.to_lowercase();
    let stemmed = stem(&lower);
    let is_same = |other: &str| other == lower || stem(other) == stemmed;
    let group = SYNONYMS.split('|').find(|group| group.split(' ').any(is_same));
    group.and_then(|group| group.split(' ').next()).map_or(stemmed.clone(), str::to_owned)
}

/// Removes the endings of an English word.
fn stem(word: &str) -> String {
    let long = |stem: &&str| stem.chars().count() >= 3;
    let mut stem = match word.strip_suffix("ies") {
        Some(start) => format!("{start}y"),
        None if word.ends_with("ss") => word.to_owned(),
        None => {
            let mut starts = ["ing", "ed", "es", "s"].iter().filter_map(|ending| word.strip_suffix(ending));
            starts.find(long).unwrap_or(word).to_owned()
        }
    };
    let mut last = stem.chars().rev();
    if stem.len() > 3 && (stem.ends_with('e') || last.next() == last.next()) {
        stem.pop();
    }
    stem
}

/// Returns the keys of the words in a text or a name, without stop words: `getFreeRooms` is `free` and `room`.
pub(crate) fn keys(text: &str) -> Vec<String> {
    let mut spaced = String::new();
    for c in text.chars() {
        if c.is_uppercase() && spaced.ends_with(char::is_lowercase) {
            spaced.push(' ');
        }
        spaced.push(c);
    }
    let words = spaced.split(|c: char| !c.is_alphanumeric());
    words.filter(|word| !word.is_empty() && !is_stop_word(word)).map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_and_synonyms_have_one_key() {
        for words in [
            "sum sums Add adds adding added plus total +",
            "prime primes",
            "city cities",
            "book books booked booking reservation",
            "price prices cost",
        ] {
            let keys: Vec<_> = words.split(' ').map(key).collect();
            assert!(keys.iter().all(|key| *key == keys[0]), "{words}: {keys:?}");
        }
        assert_eq!(keys("getFree_rooms of the HTTPServer"), ["fre", "room", "httpserver"]);
    }
}
