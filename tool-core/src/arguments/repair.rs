//! Mends arguments that are wrong in form and clear in meaning: what a schema asks for, out of what came.
//!
//! It is tried only after the strict reading failed, and only on what failed. Nothing is guessed and
//! nothing is lost: a number that has a fraction stays wrong where an integer is asked for, and so does a text that is
//! not a number. Values are rewritten as text, so numbers of any length keep all their digits.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::arguments::Members;

/// How deep a value is mended: serde_json reads no deeper.
const DEEPEST: usize = 128;

/// How often, on average, every byte of a value may be read.
const MOST_READINGS: usize = 64;

/// How much may be done for the shortest value, such as looking it up among the words of a long list.
const FREE_WORK: usize = 1 << 16;

/// How many comparisons of two names cost as much as reading a byte.
const COMPARISONS: usize = 8;

/// How many bytes could be read while a word is compared with another in any case.
const COMPARISON_IN_ANY_CASE: usize = 8;

/// How many lists of one value stand inside each other.
const MOST_LISTS: u8 = 3;

/// How many digits an integer may have that is written with an exponent.
const MOST_DIGITS: usize = 40;

/// One argument that was mended before the tool was called.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    argument: Option<String>,
    from: String,
    to: String,
}

impl Repair {
    pub(crate) fn of_argument(name: &str, from: &str, to: &str) -> Self {
        Self { argument: Some(name.into()), from: from.into(), to: to.into() }
    }

    /// An argument that the tool does not have, and that was left out.
    pub(crate) fn of_ignored(name: &str, from: &str) -> Self {
        Self { argument: Some(name.into()), from: from.into(), to: String::new() }
    }

    pub(crate) fn of_text(from: &str, to: &str) -> Self {
        Self { argument: None, from: from.into(), to: to.into() }
    }

    /// The argument's name; `None` if it was the text of all arguments that was no JSON.
    #[must_use]
    pub fn argument(&self) -> Option<&str> {
        self.argument.as_deref()
    }

    /// What the model wrote.
    #[must_use]
    pub fn from(&self) -> &str {
        &self.from
    }

    /// What the tool was given, as JSON; empty if the argument [is ignored](Self::is_ignored).
    #[must_use]
    pub fn to(&self) -> &str {
        &self.to
    }

    /// The tool has no such argument, and its set
    /// [ignores](crate::ToolSet::ignore_unknown_arguments) those.
    #[must_use]
    pub fn is_ignored(&self) -> bool {
        self.to.is_empty()
    }
}

/// Leaves the values out: they may be secrets.
impl fmt::Debug for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repair").field("argument", &self.argument).finish_non_exhaustive()
    }
}

/// The text of an object, out of a text that is none: encoded twice, or with commas too many.
pub(crate) fn mend_text(text: &str) -> Option<String> {
    if let Ok(decoded) = serde_json::from_str::<String>(text) {
        return is_object(&decoded).then_some(decoded);
    }
    let mended = without_loose_commas(text);
    (mended.len() < text.len() && is_object(&mended)).then_some(mended)
}

fn is_object(text: &str) -> bool {
    text.trim_ascii_start().starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// The text without commas that stand right before a closing bracket or right behind an opening one or
/// another comma; those in strings stay.
fn without_loose_commas(text: &str) -> String {
    let mut mended = String::with_capacity(text.len());
    let mut characters = text.chars();
    // Where the last comma stands, as long as only blanks came behind it.
    let mut loose = None;
    let mut last = ' ';
    while let Some(character) = characters.next() {
        match character {
            '"' => {
                loose = None;
                mended.push('"');
                while let Some(inner) = characters.next() {
                    mended.push(inner);
                    match inner {
                        '"' => break,
                        '\\' => mended.extend(characters.next()),
                        _ => {}
                    }
                }
                last = '"';
                continue;
            }
            ',' if matches!(last, '{' | '[' | ',') => continue,
            ',' => loose = Some(mended.len()),
            '}' | ']' => {
                if let Some(position) = loose.take() {
                    mended.remove(position);
                }
            }
            blank if blank.is_ascii_whitespace() => {
                mended.push(blank);
                continue;
            }
            _ => loose = None,
        }
        mended.push(character);
        last = character;
    }
    mended
}

/// The text of a value as the schema asks for it; `None` if it cannot be had, or is there already.
pub(crate) fn mend_value(schema: &Value, text: &str) -> Option<String> {
    match fit(schema, schema, text)? {
        Cow::Owned(mended) => Some(mended),
        Cow::Borrowed(_) => None,
    }
}

/// The text with all mended that can be, though the whole is still not what the schema asks for; nothing if that is nothing.
/// What is wrong in it is wrong for sure.
pub(crate) fn mend_partly(schema: &Value, text: &str) -> Option<String> {
    let mender = Mender::new(schema, text);
    mender.is_partial.set(true);
    match mender.mend(schema, text.trim_ascii(), 0)? {
        Cow::Owned(mended) => Some(mended),
        Cow::Borrowed(_) => None,
    }
}

/// The text of a value as the schema asks for it, which is a part of `root`: borrowed if it is that already,
/// `None` if it cannot be had.
pub(crate) fn fit<'a>(root: &Value, schema: &Value, text: &'a str) -> Option<Cow<'a, str>> {
    Mender::new(root, text).mend(schema, text.trim_ascii(), 0)
}

struct Mender<'s> {
    /// What `$ref` refers to.
    root: &'s Value,
    /// How many bytes may still be read. Where several choices fit one value, and others what is in it,
    /// all of them together are more than can be tried.
    left: Cell<usize>,
    /// What cannot be mended stays as it is.
    is_partial: Cell<bool>,
    /// How many lists are made around the value that is looked at: a type that is a list of itself asks for no end of them.
    lists: Cell<u8>,
}

impl<'s> Mender<'s> {
    fn new(root: &'s Value, text: &str) -> Self {
        let left = text.len().saturating_mul(MOST_READINGS).saturating_add(FREE_WORK);
        Self { root, left: Cell::new(left), is_partial: Cell::new(false), lists: Cell::new(0) }
    }

    /// A value inside of another, which may stay as it is if the whole need not be right.
    fn mend_inside<'a>(&self, schema: &Value, text: &'a str, depth: usize) -> Option<Cow<'a, str>> {
        let mended = self.mend(schema, text, depth);
        mended.or_else(|| self.is_partial.get().then_some(Cow::Borrowed(text)))
    }

    fn pay(&self, work: usize) -> Option<()> {
        self.left.set(self.left.get().checked_sub(work)?);
        Some(())
    }

    /// The value as the schema asks for it: borrowed if it is that already, `None` if it cannot be had.
    fn mend<'a>(&self, schema: &Value, text: &'a str, depth: usize) -> Option<Cow<'a, str>> {
        if depth > DEEPEST || matches!(schema, Value::Bool(false)) {
            return None;
        }
        self.pay(text.len())?;
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            return self.mend(self.root.pointer(reference.strip_prefix('#')?)?, text, depth + 1);
        }
        if let Some(choices) = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array) {
            // A choice is taken as a whole.
            let is_partial = self.is_partial.replace(false);
            // One that fits as it is, wins over one that would have to be mended.
            let mut first = None;
            for choice in choices {
                match self.mend(choice, text, depth + 1) {
                    Some(Cow::Borrowed(text)) => {
                        first = Some(Cow::Borrowed(text));
                        break;
                    }
                    mended => first = first.or(mended),
                }
            }
            self.is_partial.set(is_partial);
            return first;
        }
        if let Some(wanted) = schema.get("const") {
            return mend_word(std::slice::from_ref(wanted), text);
        }
        if let Some(words) = schema.get("enum").and_then(Value::as_array) {
            self.pay(words.len().saturating_mul(COMPARISON_IN_ANY_CASE))?;
            return mend_word(words, text);
        }
        let wants = |name: &str| match schema.get("type") {
            None => true,
            Some(Value::Array(names)) => names.iter().any(|one| one == name),
            Some(one) => one == name,
        };
        let items = || schema.get("items").unwrap_or(&Value::Bool(true));
        // One value for a list of such.
        let as_list = |text: &'a str| {
            let lists = self.lists.get();
            if !wants("array") || schema.get("type").is_none() || lists == MOST_LISTS {
                return None;
            }
            self.lists.set(lists + 1);
            let item = self.mend(items(), text, depth + 1);
            self.lists.set(lists);
            Some(Cow::Owned(format!("[{}]", item?)))
        };
        match text.as_bytes().first()? {
            b'"' => {
                if wants("string") {
                    return Some(Cow::Borrowed(text));
                }
                let decoded: String = serde_json::from_str(text).ok()?;
                let decoded = decoded.trim();
                let inner = match decoded.as_bytes().first() {
                    Some(b'{') if wants("object") => Some(decoded),
                    Some(b'[') if wants("array") => Some(decoded),
                    Some(b'{' | b'[') => None,
                    Some(b'-' | b'0'..=b'9') if wants("integer") || wants("number") => Some(decoded),
                    _ if wants("boolean") && decoded.eq_ignore_ascii_case("true") => Some("true"),
                    _ if wants("boolean") && decoded.eq_ignore_ascii_case("false") => Some("false"),
                    _ => None,
                };
                let is_json = |text: &&str| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
                match inner.filter(is_json) {
                    Some(inner) => Some(Cow::Owned(self.mend(schema, inner, depth + 1)?.into_owned())),
                    None => as_list(text),
                }
            }
            b'-' | b'0'..=b'9' => {
                if wants("number") {
                    Some(Cow::Borrowed(text))
                } else if wants("integer") {
                    integer(text)
                } else if wants("string") {
                    Some(Cow::Owned(format!("\"{text}\"")))
                } else {
                    as_list(text)
                }
            }
            b't' | b'f' if wants("boolean") => Some(Cow::Borrowed(text)),
            b't' | b'f' => as_list(text),
            b'n' => wants("null").then_some(Cow::Borrowed(text)),
            b'[' if wants("array") => {
                let values: Vec<&'a RawValue> = serde_json::from_str(text).ok()?;
                let prefix = schema.get("prefixItems").and_then(Value::as_array);
                let values = values.into_iter().enumerate().map(|(index, value)| {
                    let schema = prefix.and_then(|prefix| prefix.get(index)).unwrap_or_else(items);
                    self.mend_inside(schema, value.get(), depth + 1)
                });
                let values: Vec<_> = values.collect::<Option<_>>()?;
                let is_as_it_was = values.iter().all(|value| matches!(value, Cow::Borrowed(_)));
                Some(if is_as_it_was {
                    Cow::Borrowed(text)
                } else {
                    Cow::Owned(format!("[{}]", values.join(",")))
                })
            }
            b'{' if wants("object") => self.mend_object(schema, text, depth),
            b'{' => as_list(text),
            _ => None,
        }
    }

    fn mend_object<'a>(&self, schema: &Value, text: &'a str, depth: usize) -> Option<Cow<'a, str>> {
        let Members(members) = serde_json::from_str(text).ok()?;
        let required = schema.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        self.pay(required.len().saturating_mul(members.len()) / COMPARISONS)?;
        let is_required = |name: &str| required.iter().any(|one| one == name);
        if !self.is_partial.get()
            && !required.iter().all(|one| members.iter().any(|(name, _)| one == &**name))
        {
            return None;
        }
        let mut mended = String::from("{");
        let mut is_as_it_was = true;
        for (name, value) in members {
            let listed = schema.get("properties").and_then(|properties| properties.get(&*name));
            let property =
                listed.or_else(|| schema.get("additionalProperties")).unwrap_or(&Value::Bool(true));
            let value = match self.mend(property, value.get(), depth + 1) {
                Some(value) => value,
                // `null` for what may be left out says that it is left out.
                None if value.get() == "null" && listed.is_some() && !is_required(&name) => {
                    is_as_it_was = false;
                    continue;
                }
                None if self.is_partial.get() => Cow::Borrowed(value.get()),
                None => return None,
            };
            is_as_it_was &= matches!(value, Cow::Borrowed(_));
            if mended.len() > 1 {
                mended.push(',');
            }
            mended.push_str(&serde_json::to_string(&name).ok()?);
            mended.push(':');
            mended.push_str(&value);
        }
        mended.push('}');
        Some(if is_as_it_was { Cow::Borrowed(text) } else { Cow::Owned(mended) })
    }
}

/// One of some words: as it is, or in another case if just one of them is meant.
fn mend_word<'a>(words: &[Value], text: &'a str) -> Option<Cow<'a, str>> {
    let Ok(came) = serde_json::from_str::<String>(text) else {
        let mut written = words.iter().map(Value::to_string);
        return written.any(|word| word == text).then_some(Cow::Borrowed(text));
    };
    let words = || words.iter().filter_map(Value::as_str);
    if words().any(|word| word == came) {
        return Some(Cow::Borrowed(text));
    }
    let is_alike = |word: &&str| {
        let (word, came) = (word.chars(), came.chars());
        word.flat_map(char::to_lowercase).eq(came.flat_map(char::to_lowercase))
    };
    let mut alike = words().filter(is_alike);
    match (alike.next(), alike.next()) {
        (Some(word), None) => serde_json::to_string(word).ok().map(Cow::Owned),
        _ => None,
    }
}

/// An integer without fraction and exponent, if the number is one: `15000000` for `1.5E7`.
pub(crate) fn integer(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['.', 'e', 'E']) {
        return Some(Cow::Borrowed(text));
    }
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().ok()?;
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let fraction = fraction.trim_end_matches('0');
    // Where the point stands in the digits when the exponent is worked in.
    let point = i64::try_from(whole.len()).ok()?.checked_add(exponent)?;
    let digits = format!("{whole}{fraction}");
    if digits.bytes().all(|digit| digit == b'0') {
        return Some(Cow::Borrowed("0"));
    }
    let point = usize::try_from(point).ok().filter(|point| *point <= MOST_DIGITS)?;
    let (kept, cut) = digits.split_at_checked(point).unwrap_or((&digits, ""));
    if cut.bytes().any(|digit| digit != b'0') {
        return None;
    }
    let kept = format!("{kept:0<point$}");
    let kept = kept.trim_start_matches('0');
    Some(Cow::Owned(if kept.is_empty() { "0".into() } else { format!("{sign}{kept}") }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn integers_of_all_writings() {
        let table = [
            ("1.0", Some("1")),
            ("-2.00", Some("-2")),
            ("1.5E7", Some("15000000")),
            ("1e3", Some("1000")),
            ("120e-1", Some("12")),
            ("0.0", Some("0")),
            ("-0.0", Some("0")),
            ("0e999999999", Some("0")),
            ("0.5e1", Some("5")),
            ("9007199254740993.0", Some("9007199254740993")),
            ("1.5", None),
            ("1e-1", None),
            ("1e400", None),
            ("1e99999999999999999999", None),
            ("1.05e1", None),
        ];
        for (text, expected) in table {
            assert_eq!(integer(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn commas_too_many() {
        let table = [
            (r#"{"foo":"bar","qux":12,}"#, r#"{"foo":"bar","qux":12}"#),
            (r#"{"a":[1,2, ],"b":{"c":1 , } , }"#, r#"{"a":[1,2 ],"b":{"c":1  }  }"#),
            ("{,}", "{}"),
            ("[,]", "[]"),
            (r#"{"a":[1,,2]}"#, r#"{"a":[1,2]}"#),
            (r#"{"a":",}","b":"\",]"}"#, r#"{"a":",}","b":"\",]"}"#),
        ];
        for (text, expected) in table {
            assert_eq!(without_loose_commas(text), expected);
        }
    }

    #[test]
    fn choices_in_choices_take_bounded_time() {
        let child = json!({ "$ref": "#/$defs/It" });
        let choice = || json!({ "type": "object", "properties": { "it": child }, "required": ["it"] });
        let schema = json!({
            "$defs": { "It": { "anyOf": [choice(), choice(), choice(), { "type": "integer" }] } },
            "$ref": "#/$defs/It",
        });
        assert_eq!(mend_value(&schema, r#"{"it":{"it":"7"}}"#).as_deref(), Some(r#"{"it":{"it":7}}"#));
        let deep = r#"{"it":"#.repeat(60) + "\"seven\"" + &"}".repeat(60);
        assert_eq!(mend_value(&schema, &deep), None);
    }

    #[test]
    fn texts_of_no_object_stay() {
        for text in ["", "{", "[,]", "\"abc\"", "\"[1]\"", "{ invalid JSON }", "{\"a\":1}"] {
            assert_eq!(mend_text(text), None, "{text}");
        }
        assert_eq!(mend_text(r#""{\"foo\":\"bar\"}""#).as_deref(), Some(r#"{"foo":"bar"}"#));
    }
}
