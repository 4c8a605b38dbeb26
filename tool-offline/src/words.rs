//! All words that the model knows, by what they do in a question, and the keywords of the others.

/// The words that end a clause.
pub(crate) const ENDS: &str = ". ? ! ; then";

/// The words that join two clauses, or two values.
pub(crate) const JOINTS: &str = "and ,";

/// The prepositions that introduce a value.
pub(crate) const PREPOSITIONS: &str = "in of for from to at on by about with";

/// The words between a value and its name: "the height of 4", "the height is 4", "a=4".
pub(crate) const LINKS: &str = "of is = : # the a";

/// The words that refer to an earlier result.
pub(crate) const PRONOUNS: &str = "that it its this result";

/// The words before a flag that is not wanted.
pub(crate) const NEGATIONS: &str = "without no not";

/// Words that questions and descriptions of every kind contain, among them verbs that request something without saying what.
const STOP_WORDS: &str = "a an the this that these those it its they them their there here of in on at for from by with without \
    and or but if then than as into onto to out up down between below above through i me my we us our you your is are was were be \
    do does did have has had can could would will should may might must what which who when where why how many much \
    not no please value values given result number numbers two all each named called using after first next finally let s \
    get fetch find show tell give display return returns retrieve list calculate compute determine check look see know \
    want need take count search current like about so also";

/// Groups of words with one meaning.
const SYNONYMS: [&str; 11] = [
    "sum add addition plus total +",
    "subtract subtraction minus difference -",
    "multiply multiplication product times * ×",
    "divide division quotient / ÷",
    "sqrt root",
    "weather forecast",
    "price cost",
    "delete remove cancel",
    "email mail e-mail",
    "book reserve reservation",
    "file document",
];

/// The endings of words, and what replaces them; the first that fits counts.
const ENDINGS: [(&str, &str); 7] =
    [("ies", "y"), ("ss", "ss"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("e", "")];

/// Returns `true` if a list contains a word, which is in lower case.
pub(crate) fn is_in(list: &str, word: &str) -> bool {
    list.split(' ').any(|one| one == word)
}

/// Returns what all forms and synonyms of a word have in common; nothing for a stop word.
pub(crate) fn keyword(word: &str) -> Option<String> {
    let lower = word.to_lowercase();
    let stemmed = stem(&lower);
    let mut groups = SYNONYMS.iter().map(|group| group.split(' '));
    let group = groups.find(|group| group.clone().any(|one| one == lower || stem(one) == stemmed));
    let keyword = group.and_then(|mut group| group.next()).map_or(stemmed, str::to_owned);
    (!is_in(STOP_WORDS, &lower)).then_some(keyword)
}

/// Removes the ending of an English word.
fn stem(word: &str) -> String {
    let replace = |(ending, replacement): &(&str, &str)| {
        let stem = word.strip_suffix(ending).filter(|stem| stem.chars().count() >= 3)?;
        Some(format!("{stem}{replacement}"))
    };
    ENDINGS.iter().find_map(replace).unwrap_or_else(|| word.to_owned())
}

/// Returns the keywords of the words in a text or a name: `getFreeRooms` is `free` and `room`.
pub(crate) fn keywords(text: &str) -> Vec<String> {
    let mut spaced = String::new();
    for c in text.chars() {
        if c.is_uppercase() && spaced.ends_with(char::is_lowercase) {
            spaced.push(' ');
        }
        spaced.push(c);
    }
    spaced.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).filter_map(keyword).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_and_synonyms_have_one_keyword() {
        for words in [
            "sum sums Add adds adding added plus total +",
            "prime primes",
            "city cities",
            "book books booked booking reservation",
            "price prices cost",
        ] {
            let keywords: Vec<_> = words.split(' ').map(keyword).collect();
            assert!(keywords.iter().all(|keyword| *keyword == keywords[0]), "{words}: {keywords:?}");
        }
        assert_eq!(keywords("getFree_rooms of the HTTPServer"), ["fre", "room", "httpserver"]);
    }
}
