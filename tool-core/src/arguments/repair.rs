//! Repair of arguments that have the wrong form but a clear meaning, guided by a schema.
//!
//! A repair is attempted only after strict parsing failed, and only on the values that failed. It guesses nothing and loses
//! nothing: where an integer is required, a number with a fraction remains an error, and so does a string that is not a
//! number. Values are rewritten as text, so numbers of any length keep all their digits.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::arguments::Members;

/// The maximum depth of a repaired value, which is the recursion limit of serde_json.
const MAX_DEPTH: usize = 128;

/// The average number of times that each byte of a value may be read.
const READS_PER_BYTE: usize = 64;

/// The work that even the shortest value may cause, such as a lookup in a long `enum`.
const MIN_WORK: usize = 1 << 16;

/// The number of name comparisons that count as reading one byte.
const COMPARISONS_PER_BYTE: usize = 8;

/// The cost in bytes of one case-insensitive comparison.
const CASE_INSENSITIVE_COMPARISON: usize = 8;

/// The maximum number of lists that are nested around a single value.
const MAX_ADDED_LISTS: u8 = 3;

/// The maximum number of digits of an integer that is written with an exponent.
const MAX_DIGITS: usize = 40;

/// The repair of one argument before the tool was called.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    argument: Option<String>,
    from: String,
    to: String,
}

impl Repair {
    pub(crate) fn for_argument(name: &str, from: &str, to: &str) -> Self {
        Self { argument: Some(name.into()), from: from.into(), to: to.into() }
    }

    /// Records an ignored argument, which the tool does not have.
    pub(crate) fn for_ignored(name: &str, from: &str) -> Self {
        Self { argument: Some(name.into()), from: from.into(), to: String::new() }
    }

    pub(crate) fn for_text(from: &str, to: &str) -> Self {
        Self { argument: None, from: from.into(), to: to.into() }
    }

    /// Returns the name of the argument, or `None` if the text of all arguments was repaired because it was not valid JSON.
    #[must_use]
    pub fn argument(&self) -> Option<&str> {
        self.argument.as_deref()
    }

    /// Returns the text that the model wrote.
    #[must_use]
    pub fn from(&self) -> &str {
        &self.from
    }

    /// Returns the JSON that the tool received, which is empty if the argument [was ignored](Self::is_ignored).
    #[must_use]
    pub fn to(&self) -> &str {
        &self.to
    }

    /// Returns `true` if the argument was removed because the tool does not have it and its set
    /// [ignores unknown arguments](crate::ToolSet::ignore_unknown_arguments).
    #[must_use]
    pub fn is_ignored(&self) -> bool {
        self.to.is_empty()
    }
}

/// Omits the values, which may be secrets.
impl fmt::Debug for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repair").field("argument", &self.argument).finish_non_exhaustive()
    }
}

/// Repairs a text that is not an object because it was encoded twice or has superfluous commas.
pub(crate) fn repair_text(text: &str) -> Option<String> {
    if let Ok(decoded) = serde_json::from_str::<String>(text) {
        return is_object(&decoded).then_some(decoded);
    }
    let repaired = remove_superfluous_commas(text);
    (repaired.len() < text.len() && is_object(&repaired)).then_some(repaired)
}

fn is_object(text: &str) -> bool {
    text.trim_ascii_start().starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// Removes commas directly before a closing bracket and directly after an opening bracket or another comma, except in
/// strings.
fn remove_superfluous_commas(text: &str) -> String {
    let mut repaired = String::with_capacity(text.len());
    let mut characters = text.chars();
    // The position of the last comma if only whitespace followed it.
    let mut superfluous = None;
    let mut last = ' ';
    while let Some(character) = characters.next() {
        match character {
            '"' => {
                superfluous = None;
                repaired.push('"');
                while let Some(inner) = characters.next() {
                    repaired.push(inner);
                    match inner {
                        '"' => break,
                        '\\' => repaired.extend(characters.next()),
                        _ => {}
                    }
                }
                last = '"';
                continue;
            }
            ',' if matches!(last, '{' | '[' | ',') => continue,
            ',' => superfluous = Some(repaired.len()),
            '}' | ']' => {
                if let Some(position) = superfluous.take() {
                    repaired.remove(position);
                }
            }
            space if space.is_ascii_whitespace() => {
                repaired.push(space);
                continue;
            }
            _ => superfluous = None,
        }
        repaired.push(character);
        last = character;
    }
    repaired
}

/// Repairs a value. Returns `None` if it cannot be repaired or needs no repair.
pub(crate) fn repair_value(schema: &Value, text: &str) -> Option<String> {
    match conform(schema, schema, text)? {
        Cow::Owned(repaired) => Some(repaired),
        Cow::Borrowed(_) => None,
    }
}

/// Repairs the parts of a value that can be repaired, although the value as a whole cannot. Returns `None` if there are none.
/// The remaining mistakes in the result are certain.
pub(crate) fn repair_partially(schema: &Value, text: &str) -> Option<String> {
    let repairer = Repairer::new(schema, text);
    repairer.is_partial.set(true);
    match repairer.repair(schema, text.trim_ascii(), 0)? {
        Cow::Owned(repaired) => Some(repaired),
        Cow::Borrowed(_) => None,
    }
}

/// Returns the text of a value in the form that `schema`, a part of `root`, requires: borrowed if it has that form already,
/// `None` if it cannot be repaired.
pub(crate) fn conform<'a>(root: &Value, schema: &Value, text: &'a str) -> Option<Cow<'a, str>> {
    Repairer::new(root, text).repair(schema, text.trim_ascii(), 0)
}

struct Repairer<'s> {
    /// The schema that `$ref` refers to.
    root: &'s Value,
    /// The number of bytes that may still be read. Nested alternatives multiply, so not all of them can be tried.
    remaining: Cell<usize>,
    /// Values that cannot be repaired are left unchanged.
    is_partial: Cell<bool>,
    /// The number of lists that were added around the current value. For a type that is a list of itself, it would grow
    /// without end.
    lists: Cell<u8>,
}

impl<'s> Repairer<'s> {
    fn new(root: &'s Value, text: &str) -> Self {
        let remaining = text.len().saturating_mul(READS_PER_BYTE).saturating_add(MIN_WORK);
        Self { root, remaining: Cell::new(remaining), is_partial: Cell::new(false), lists: Cell::new(0) }
    }

    /// Repairs a nested value, or leaves it unchanged if the repair is partial.
    fn repair_nested<'a>(&self, schema: &Value, text: &'a str, depth: usize) -> Option<Cow<'a, str>> {
        let repaired = self.repair(schema, text, depth);
        repaired.or_else(|| self.is_partial.get().then_some(Cow::Borrowed(text)))
    }

    fn spend(&self, work: usize) -> Option<()> {
        self.remaining.set(self.remaining.get().checked_sub(work)?);
        Some(())
    }

    /// Returns the value in the form that the schema requires: borrowed if it has that form already, `None` if it cannot be
    /// repaired.
    fn repair<'a>(&self, schema: &Value, text: &'a str, depth: usize) -> Option<Cow<'a, str>> {
        if depth > MAX_DEPTH || matches!(schema, Value::Bool(false)) {
            return None;
        }
        self.spend(text.len())?;
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            return self.repair(self.root.pointer(reference.strip_prefix('#')?)?, text, depth + 1);
        }
        if let Some(choices) = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array) {
            // Alternatives are not repaired partially.
            let is_partial = self.is_partial.replace(false);
            // An alternative that needs no repair takes precedence.
            let mut first = None;
            for choice in choices {
                match self.repair(choice, text, depth + 1) {
                    Some(Cow::Borrowed(text)) => {
                        first = Some(Cow::Borrowed(text));
                        break;
                    }
                    repaired => first = first.or(repaired),
                }
            }
            self.is_partial.set(is_partial);
            return first;
        }
        if let Some(constant) = schema.get("const") {
            return repair_enum(std::slice::from_ref(constant), text);
        }
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            self.spend(values.len().saturating_mul(CASE_INSENSITIVE_COMPARISON))?;
            return repair_enum(values, text);
        }
        let allows = |name: &str| match schema.get("type") {
            None => true,
            Some(Value::Array(names)) => names.iter().any(|one| one == name),
            Some(one) => one == name,
        };
        let items = || schema.get("items").unwrap_or(&Value::Bool(true));
        // A single value where a list is required.
        let as_list = |text: &'a str| {
            let lists = self.lists.get();
            if !allows("array") || schema.get("type").is_none() || lists == MAX_ADDED_LISTS {
                return None;
            }
            self.lists.set(lists + 1);
            let item = self.repair(items(), text, depth + 1);
            self.lists.set(lists);
            Some(Cow::Owned(format!("[{}]", item?)))
        };
        match text.as_bytes().first()? {
            b'"' => {
                if allows("string") {
                    return Some(Cow::Borrowed(text));
                }
                let decoded: String = serde_json::from_str(text).ok()?;
                let decoded = decoded.trim();
                let inner = match decoded.as_bytes().first() {
                    Some(b'{') if allows("object") => Some(decoded),
                    Some(b'[') if allows("array") => Some(decoded),
                    Some(b'{' | b'[') => None,
                    Some(b'-' | b'0'..=b'9') if allows("integer") || allows("number") => Some(decoded),
                    _ if allows("boolean") && decoded.eq_ignore_ascii_case("true") => Some("true"),
                    _ if allows("boolean") && decoded.eq_ignore_ascii_case("false") => Some("false"),
                    _ => None,
                };
                let is_json = |text: &&str| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
                match inner.filter(is_json) {
                    Some(inner) => Some(Cow::Owned(self.repair(schema, inner, depth + 1)?.into_owned())),
                    None => as_list(text),
                }
            }
            b'-' | b'0'..=b'9' => {
                if allows("number") {
                    Some(Cow::Borrowed(text))
                } else if allows("integer") {
                    integer(text)
                } else if allows("string") {
                    Some(Cow::Owned(format!("\"{text}\"")))
                } else {
                    as_list(text)
                }
            }
            b't' | b'f' if allows("boolean") => Some(Cow::Borrowed(text)),
            b't' | b'f' => as_list(text),
            b'n' => allows("null").then_some(Cow::Borrowed(text)),
            b'[' if allows("array") => {
                let values: Vec<&'a RawValue> = serde_json::from_str(text).ok()?;
                let prefix = schema.get("prefixItems").and_then(Value::as_array);
                let values = values.into_iter().enumerate().map(|(index, value)| {
                    let schema = prefix.and_then(|prefix| prefix.get(index)).unwrap_or_else(items);
                    self.repair_nested(schema, value.get(), depth + 1)
                });
                let values: Vec<_> = values.collect::<Option<_>>()?;
                let is_unchanged = values.iter().all(|value| matches!(value, Cow::Borrowed(_)));
                Some(if is_unchanged {
                    Cow::Borrowed(text)
                } else {
                    Cow::Owned(format!("[{}]", values.join(",")))
                })
            }
            b'{' if allows("object") => self.repair_object(schema, text, depth),
            b'{' => as_list(text),
            _ => None,
        }
    }

    fn repair_object<'a>(&self, schema: &Value, text: &'a str, depth: usize) -> Option<Cow<'a, str>> {
        let Members(members) = serde_json::from_str(text).ok()?;
        let required = schema.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        self.spend(required.len().saturating_mul(members.len()) / COMPARISONS_PER_BYTE)?;
        let is_required = |name: &str| required.iter().any(|one| one == name);
        if !self.is_partial.get()
            && !required.iter().all(|one| members.iter().any(|(name, _)| one == &**name))
        {
            return None;
        }
        let mut repaired = String::from("{");
        let mut is_unchanged = true;
        for (name, value) in members {
            let listed = schema.get("properties").and_then(|properties| properties.get(&*name));
            let property =
                listed.or_else(|| schema.get("additionalProperties")).unwrap_or(&Value::Bool(true));
            let value = match self.repair(property, value.get(), depth + 1) {
                Some(value) => value,
                // `null` stands for an optional member that is omitted.
                None if value.get() == "null" && listed.is_some() && !is_required(&name) => {
                    is_unchanged = false;
                    continue;
                }
                None if self.is_partial.get() => Cow::Borrowed(value.get()),
                None => return None,
            };
            is_unchanged &= matches!(value, Cow::Borrowed(_));
            if repaired.len() > 1 {
                repaired.push(',');
            }
            repaired.push_str(&serde_json::to_string(&name).ok()?);
            repaired.push(':');
            repaired.push_str(&value);
        }
        repaired.push('}');
        Some(if is_unchanged { Cow::Borrowed(text) } else { Cow::Owned(repaired) })
    }
}

/// Matches a value with those of an `enum`: exactly, or in another case if that is unambiguous.
fn repair_enum<'a>(values: &[Value], text: &'a str) -> Option<Cow<'a, str>> {
    let Ok(given) = serde_json::from_str::<String>(text) else {
        let mut written = values.iter().map(Value::to_string);
        return written.any(|value| value == text).then_some(Cow::Borrowed(text));
    };
    let names = || values.iter().filter_map(Value::as_str);
    if names().any(|name| name == given) {
        return Some(Cow::Borrowed(text));
    }
    let is_equal = |name: &&str| {
        let (name, given) = (name.chars(), given.chars());
        name.flat_map(char::to_lowercase).eq(given.flat_map(char::to_lowercase))
    };
    let mut equal = names().filter(is_equal);
    match (equal.next(), equal.next()) {
        (Some(name), None) => serde_json::to_string(name).ok().map(Cow::Owned),
        _ => None,
    }
}

/// Returns an integer without fraction and exponent, such as `15000000` for `1.5E7`, or `None` if the number is not an
/// integer.
pub(crate) fn integer(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['.', 'e', 'E']) {
        // serde_json reads `-0` as a number with a fraction.
        return Some(if text == "-0" { Cow::Owned("0".into()) } else { Cow::Borrowed(text) });
    }
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().ok()?;
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let fraction = fraction.trim_end_matches('0');
    // The position of the decimal point in the digits after the exponent is applied.
    let point = i64::try_from(whole.len()).ok()?.checked_add(exponent)?;
    let digits = format!("{whole}{fraction}");
    if digits.bytes().all(|digit| digit == b'0') {
        return Some(Cow::Owned("0".into()));
    }
    let point = usize::try_from(point).ok().filter(|point| *point <= MAX_DIGITS)?;
    let (integer, rest) = digits.split_at_checked(point).unwrap_or((&digits, ""));
    if rest.bytes().any(|digit| digit != b'0') {
        return None;
    }
    let integer = format!("{integer:0<point$}");
    let integer = integer.trim_start_matches('0');
    Some(Cow::Owned(if integer.is_empty() { "0".into() } else { format!("{sign}{integer}") }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn integers_in_any_notation() {
        let table = [
            ("1.0", Some("1")),
            ("-2.00", Some("-2")),
            ("1.5E7", Some("15000000")),
            ("1e3", Some("1000")),
            ("120e-1", Some("12")),
            ("0.0", Some("0")),
            ("-0.0", Some("0")),
            ("-0", Some("0")),
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
    fn removes_superfluous_commas() {
        let table = [
            (r#"{"foo":"bar","qux":12,}"#, r#"{"foo":"bar","qux":12}"#),
            (r#"{"a":[1,2, ],"b":{"c":1 , } , }"#, r#"{"a":[1,2 ],"b":{"c":1  }  }"#),
            ("{,}", "{}"),
            ("[,]", "[]"),
            (r#"{"a":[1,,2]}"#, r#"{"a":[1,2]}"#),
            (r#"{"a":",}","b":"\",]"}"#, r#"{"a":",}","b":"\",]"}"#),
        ];
        for (text, expected) in table {
            assert_eq!(remove_superfluous_commas(text), expected);
        }
    }

    #[test]
    fn nested_alternatives_take_bounded_time() {
        let child = json!({ "$ref": "#/$defs/It" });
        let choice = || json!({ "type": "object", "properties": { "it": child }, "required": ["it"] });
        let schema = json!({
            "$defs": { "It": { "anyOf": [choice(), choice(), choice(), { "type": "integer" }] } },
            "$ref": "#/$defs/It",
        });
        assert_eq!(repair_value(&schema, r#"{"it":{"it":"7"}}"#).as_deref(), Some(r#"{"it":{"it":7}}"#));
        let deep = r#"{"it":"#.repeat(60) + "\"seven\"" + &"}".repeat(60);
        assert_eq!(repair_value(&schema, &deep), None);
    }

    #[test]
    fn texts_that_are_not_objects_are_not_repaired() {
        for text in ["", "{", "[,]", "\"abc\"", "\"[1]\"", "{ invalid JSON }", "{\"a\":1}"] {
            assert_eq!(repair_text(text), None, "{text}");
        }
        assert_eq!(repair_text(r#""{\"foo\":\"bar\"}""#).as_deref(), Some(r#"{"foo":"bar"}"#));
    }
}
