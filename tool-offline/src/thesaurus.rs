//! Relates words: stems, synonyms, stop words and light verbs.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

use crate::tokens::{Text, TokenKind, is_ideograph};

/// Operations and their synonyms. A word that starts with `=` is not stemmed: `times` is not `time`.
const OPERATIONS: &str = "sum, add, plus, total, addition, +; subtract, subtraction, minus, difference, deduct, take away, -; \
    multiply, multiplication, product, =times, *, ×; divide, division, quotient, ratio, /, ÷; \
    power, exponent, exponentiate, raise, ^; modulo, mod, remainder; average, mean; median; \
    round, rounding; send, mail, email, forward, deliver, write; write, save, store, compose; \
    create, make, add, new, register, generate, insert, set up; \
    delete, remove, erase, drop, cancel, get rid of; update, change, modify, edit, rename, set; \
    book, reserve, reservation, booking; buy, purchase, order; sell, sale; \
    convert, conversion, transform, turn into, exchange, change; translate, translation, say; \
    reverse, backwards, invert, flip; count, how many, number of, length, how long; sort, order; \
    roll, throw, toss, flip; play, listen; \
    turn, switch, toggle, set, turn on, turn off, switch on, switch off; \
    start, begin, launch, run, execute; stop, end, halt, quit; remind, reminder, alarm; \
    schedule, plan, appointment, meeting; pay, payment, transfer; \
    greet, greeting, welcome, say hello, say hi; read, open; encrypt, encode; decrypt, decode; \
    draw, plot, chart; upload; download; unlock; lock; summarize, summarise, summary; \
    define, definition, mean, meaning, dictionary; walk, drive, move, go";

/// Things and their synonyms.
const THINGS: &str = "sqrt, square root, root; maximum, max, largest, biggest, highest, greatest; \
    minimum, min, smallest, lowest, least; weather, forecast, rain, snow, sunny, umbrella; \
    temperature, warm, hot, cold, how hot, how warm, how cold, weather, degree; \
    time, clock, now, hour, what time; date, today, day, calendar; \
    price, cost, how much, fee, quote, worth; stock, share, ticker; mail, email, message; \
    text, string, sentence, phrase; letter, character, char; dice, die; \
    city, place, location, town, where; country, nation, state; distance, far, how far; \
    duration, long, how long; route, direction, way, path; population, inhabitant; age, old, how old; \
    weight, heavy, how heavy; height, tall, high, how tall, how high; speed, velocity, fast, how fast; \
    image, picture, photo; song, music, track, tune; film, movie; car, vehicle; flight, plane, fly; \
    hotel, room, accommodation; restaurant, food, eat; file, document; folder, directory; \
    website, site, url, link, web page; news, headline, article; light, lamp; task, todo, to do; \
    user, account; language, tongue; currency, money, dollar, euro, pound, yen, usd, eur, gbp; \
    random, chance; http, web, internet, online";

/// Stop words, which carry no meaning of their own.
const STOP_WORDS: &str = " a an the this that these those it its they them their there here he she his her him of to in on \
    at for from by with without and or but if then than as into onto about out up down off between through per via \
    i me my we us our you your is are was were be been am 's s do does did doing have has had can could would will \
    should shall may might must what which who whom whose when where why how not no so just also too very some any \
    all each every both please thanks number value given result thing like following named called using \
    number numbers values after that first next finally let ";

/// Light verbs, which request something without saying what.
const LIGHT_VERBS: &str = " get fetch find show tell give display retrieve return calculate compute determine evaluate \
    check look see know want need use take help perform provide obtain work lookup identify locate solve estimate \
    describe suggest report print search browse query list compare current currently ";

/// A word or phrase, with its groups of synonyms.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    pub(crate) stem: String,
    groups: Vec<usize>,
    /// It is a light verb such as `get`, which fits nearly every tool.
    pub(crate) is_light: bool,
    /// Its tokens.
    pub(crate) span: Range<usize>,
}

impl Term {
    /// Returns the similarity of two terms: 1 for the same stem, less for a synonym, 0 for neither.
    pub(crate) fn similarity(&self, other: &Self) -> f64 {
        let mut stems = [&self.stem, &other.stem];
        stems.sort_by_key(|stem| stem.len());
        let [short, long] = stems;
        let is_synonym = || self.groups.iter().any(|group| other.groups.contains(group));
        // `calculate` and `calculator`, but not `count` and `country`.
        let is_derived = || short.len() >= 6 && long.starts_with(&**short) && long.len() <= short.len() + 5;
        match short == long {
            true => 1.0,
            false if is_synonym() || is_derived() => 0.8,
            false => 0.0,
        }
    }

    pub(crate) fn similarity_to_any(&self, others: &[Self]) -> f64 {
        others.iter().map(|other| self.similarity(other)).fold(0.0, f64::max)
    }

    /// Returns `true` if the term names an operation.
    pub(crate) fn is_operation(&self) -> bool {
        self.groups.iter().any(|group| *group < *OPERATION_COUNT)
    }
}

/// The synonym groups of every word and phrase. The words of a phrase are separated by spaces.
static GROUPS: LazyLock<HashMap<String, Vec<usize>>> = LazyLock::new(|| {
    let mut groups: HashMap<String, Vec<usize>> = HashMap::new();
    for (group, words) in OPERATIONS.split("; ").chain(THINGS.split("; ")).enumerate() {
        for word in words.split(", ") {
            let stems: Vec<_> = word.split(' ').map(stem_of_entry).collect();
            groups.entry(stems.join(" ")).or_default().push(group);
        }
    }
    groups
});

static OPERATION_COUNT: LazyLock<usize> = LazyLock::new(|| OPERATIONS.split("; ").count());

fn stem_of_entry(word: &str) -> String {
    word.strip_prefix('=').map_or_else(|| stem(word), ToOwned::to_owned)
}

/// Returns `true` for a light verb such as `get`, which fits nearly every tool.
pub(crate) fn is_light(lower: &str) -> bool {
    is_in(LIGHT_VERBS, lower)
}

pub(crate) fn is_stop(lower: &str) -> bool {
    is_in(STOP_WORDS, lower)
}

fn is_in(list: &str, word: &str) -> bool {
    list.split(' ').any(|one| one == word) && !word.is_empty()
}

/// Returns the terms of words given with their positions. Stop words are omitted unless they are part of a phrase.
pub(crate) fn terms<'a>(words: impl IntoIterator<Item = (usize, &'a str)>) -> Vec<Term> {
    let words: Vec<(usize, String)> = words
        .into_iter()
        .flat_map(|(at, word)| split_identifier(word).into_iter().map(move |part| (at, part)))
        .collect();
    let mut terms = Vec::new();
    let mut rest = &words[..];
    while let Some((at, first)) = rest.first() {
        let phrase = (2..=3).rev().find_map(|length| {
            let words = rest.get(..length)?;
            let is_row = words
                .windows(2)
                .all(|pair| matches!(pair, [(one, _), (next, _)] if next.abs_diff(*one) <= 1));
            let stems: Vec<_> = words.iter().filter(|_| is_row).map(|(_, word)| stem(word)).collect();
            let stem = stems.join(" ");
            Some((length, GROUPS.get(&stem)?.clone(), stem))
        });
        let (length, groups, stem) = phrase.unwrap_or_else(|| {
            let stem = if GROUPS.contains_key(first) { first.clone() } else { stem(first) };
            (1, GROUPS.get(&stem).cloned().unwrap_or_default(), stem)
        });
        let end = rest.get(length - 1).map_or(*at, |(end, _)| *end) + 1;
        // A remainder of `e-mail` or `num1`.
        let is_single_letter = first.len() == 1 && first.chars().all(char::is_alphanumeric);
        if length > 1 || !is_single_letter && !is_stop(first) {
            terms.push(Term { stem, groups, is_light: length == 1 && is_light(first), span: *at..end });
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    terms
}

/// Returns the terms of a description.
pub(crate) fn terms_in(text: &str) -> Vec<Term> {
    let text = Text::new(text);
    terms(words_of(&text, text.all()))
}

/// Returns the words in a range of tokens with their positions.
pub(crate) fn words_of(text: &Text, range: Range<usize>) -> impl Iterator<Item = (usize, &str)> {
    let tokens = text.tokens.iter().enumerate().skip(range.start).take(range.len());
    tokens.filter(|(_, token)| token.kind == TokenKind::Word).map(|(at, token)| (at, &*token.text))
}

/// Splits an identifier into lower-case words: `squareRoot`, `square_root` and `square-root` give the same. In
/// scripts without spaces, every pair of adjacent characters counts as a word.
pub(crate) fn split_identifier(word: &str) -> Vec<String> {
    let characters: Vec<char> = word.chars().collect();
    if characters.first().is_some_and(|c| is_ideograph(*c)) {
        return characters.windows(2.min(characters.len())).map(|pair| pair.iter().collect()).collect();
    }
    if word.chars().all(|c| !c.is_alphanumeric()) {
        return vec![word.to_owned()];
    }
    let mut parts = vec![String::new()];
    let mut before = ' ';
    for c in characters {
        let begins = c.is_uppercase() && before.is_lowercase() || c.is_numeric() && before.is_alphabetic();
        if begins || !c.is_alphanumeric() && c != '\'' {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut().filter(|_| c.is_alphanumeric() || c == '\'') {
            part.extend(c.to_lowercase());
        }
        before = c;
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Strips common endings, so that `cities` and `city`, `adding` and `add` become equal.
fn stem(word: &str) -> String {
    let strip =
        |ending: &str, least: usize| word.strip_suffix(ending).filter(|stem| stem.chars().count() >= least);
    let stem = if let Some(stem) = strip("ies", 2).or_else(|| strip("ied", 2)) {
        format!("{stem}y")
    } else if let Some(stem) = strip("sses", 1) {
        format!("{stem}ss")
    } else if let Some(stem) = strip("ing", 3).or_else(|| strip("ed", 3)) {
        without_doubling(stem).to_owned()
    } else if let Some(stem) = strip("es", 3).filter(|stem| stem.ends_with(['x', 'h', 'o'])) {
        stem.to_owned()
    } else if let Some(stem) = strip("s", 2).filter(|stem| !stem.ends_with(['s', 'u', 'i'])) {
        stem.to_owned()
    } else {
        word.to_owned()
    };
    match stem.strip_suffix('e').filter(|stem| stem.chars().count() > 2) {
        Some(stem) => stem.to_owned(),
        None => stem,
    }
}

fn without_doubling(stem: &str) -> &str {
    let mut letters = stem.chars().rev();
    match (letters.next(), letters.next()) {
        (Some(last), Some(before)) if last == before && !"lszd".contains(last) && last.is_alphabetic() => {
            stem.strip_suffix(last).unwrap_or(stem)
        }
        _ => stem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relates_stems_and_synonyms() {
        for (one, other) in [
            ("cities", "city"),
            ("summing", "sums"),
            ("Adding", "plus"),
            ("dividing", "divides"),
            ("multiplied", "times"),
            ("squareRoot", "sqrt"),
            ("how many", "count"),
            ("e-mails", "email"),
            ("raining", "forecast"),
            ("dishes", "dish"),
        ] {
            let (one, other) = (terms_in(one), terms_in(other));
            let best = one.iter().map(|term| term.similarity_to_any(&other)).fold(0.0, f64::max);
            assert!(best > 0.0, "{one:?} {other:?}");
        }
        let (times, time) = (terms_in("times"), terms_in("time"));
        assert!(times[0].similarity(&time[0]) == 0.0);
    }

    #[test]
    fn splits_identifiers() {
        for name in ["daysBetweenDates", "days_between-dates", "days between.dates"] {
            assert_eq!(split_identifier(name), ["days", "between", "dates"]);
        }
        assert_eq!(split_identifier("天气好"), ["天气", "气好"]);
        assert_eq!(split_identifier("height_m2"), ["height", "m", "2"]);
    }
}
