//! Looks an object through by its schema and tells every mistake at once, in the words of `expectation`.
//!
//! It runs only after the object was refused. It follows the text, so that what came is told as it was written,
//! and it is bounded in depth and in work: both the text and the schema may be a stranger's.

mod fitting;
mod words;

use std::collections::{HashMap, HashSet};

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use self::fitting::{has_type, is_in_range, is_one_of};
use super::expectation::quote;
use crate::arguments::{LONGEST_ACCOUNT, Members, expectation, note};

/// How deep a value is looked into: serde_json reads no deeper.
const DEEPEST: usize = 128;

/// How many values are looked at.
const MOST_VALUES: usize = 200_000;

/// How long the words for what was expected may be, in characters.
const LONGEST_EXPECTATION: usize = 1000;

/// The words of a schema that give several to choose from.
const CHOICES: [&str; 2] = ["anyOf", "oneOf"];

/// The words of a schema about members that are not listed in it.
const BY_PATTERN: [&str; 2] = ["patternProperties", "additionalProperties"];

/// What is told of a value by looking at it, or says nothing of it. The judge is asked for all others.
const LOOKED_AT: [&str; 19] = [
    "$ref",
    "$defs",
    "definitions",
    "$schema",
    "$id",
    "$comment",
    "title",
    "description",
    "default",
    "examples",
    "format",
    "type",
    "enum",
    "const",
    "allOf",
    "properties",
    "patternProperties",
    "required",
    "prefixItems",
];

/// How many schemas are asked about. Each has to be compiled first.
const MOST_VERDICTS: usize = 64;

/// Knows whether a value fits a schema.
pub(crate) trait Judge {
    /// Tells of JSON texts whether they fit a part of the schema; nothing if it cannot be known.
    fn verdict(&self, part: Map<String, Value>) -> Option<Verdict>;
}

/// The JSON text fits.
pub(crate) type Verdict = Box<dyn Fn(&str) -> bool>;

/// The account of what is wrong with an object.
pub(crate) struct Inspection<'s> {
    root: &'s Value,
    judge: Option<&'s dyn Judge>,
    account: String,
    /// Of these places it was told already what is wrong.
    told: Vec<String>,
    left: usize,
    /// What the judge made of the schemas at these addresses.
    verdicts: HashMap<*const Map<String, Value>, Option<Verdict>>,
}

impl<'s> Inspection<'s> {
    pub(crate) fn new(root: &'s Value, judge: Option<&'s dyn Judge>) -> Self {
        Self {
            root,
            judge,
            account: String::new(),
            told: Vec::new(),
            left: MOST_VALUES,
            verdicts: HashMap::new(),
        }
    }

    /// Notes a mistake that begins with its place in back-ticks; nothing else is told of that place then.
    pub(crate) fn tell_first(&mut self, mistake: &str) {
        let place = mistake.strip_prefix('`').and_then(|rest| rest.split_once('`')).map(|(place, _)| place);
        if self.told.iter().any(|told| Some(&**told) == place) {
            return;
        }
        self.told.extend(place.map(str::to_owned));
        note(&mut self.account, mistake);
    }

    pub(crate) fn into_account(self) -> String {
        self.account
    }

    /// Looks the object of all arguments through.
    pub(crate) fn arguments(&mut self, text: &str) {
        let before = self.account.len();
        self.value("", self.root, text, 0);
        if self.account.len() != before || self.is_full() {
            return;
        }
        // Too deep or too much to be looked through: at least the argument is named.
        let Ok(Members(members)) = serde_json::from_str(text) else { return };
        self.verdicts.clear();
        for (name, value) in members {
            let schema = self.root.get("properties").and_then(|properties| properties.get(&*name));
            let Some(schema) = schema.and_then(Value::as_object) else { continue };
            if !self.fits(schema, value.get(), Map::clone) {
                self.wrong(&name, &self.constraints_of(schema), &quote(value.get()));
            }
        }
    }

    fn is_full(&self) -> bool {
        self.account.len() > LONGEST_ACCOUNT
    }

    fn tell(&mut self, place: &str, mistake: &str) {
        if !self.told.iter().any(|told| told == place) {
            note(&mut self.account, mistake);
        }
    }

    fn wrong(&mut self, place: &str, expected: &str, came: &str) {
        let expected = cut(expected);
        if place.is_empty() {
            self.tell(place, &format!("expected {expected}"));
        } else {
            self.tell(place, &format!("`{place}`: expected {expected}, got {came}"));
        }
    }

    fn value(&mut self, place: &str, schema: &Value, text: &str, depth: usize) {
        if depth > DEEPEST || self.left == 0 || self.is_full() {
            return;
        }
        self.left -= 1;
        let Value::Object(schema) = schema else {
            if *schema == Value::Bool(false) {
                self.tell(place, &format!("`{place}` must be left out"));
            }
            return;
        };
        let before = self.account.len();
        if let Some(target) = self.target(schema) {
            self.value(place, target, text, depth + 1);
            if self.reads_references_alone() {
                return;
            }
        }
        for part in list(schema, "allOf") {
            self.value(place, part, text, depth + 1);
        }
        if !has_type(schema, text) {
            return self.wrong(place, &self.words(schema), &quote(text));
        }
        if let Some(choice) = self.only_choice(schema, text) {
            match choice {
                Some(choice) => self.value(place, choice, text, depth + 1),
                None => return self.wrong(place, &self.words(schema), &quote(text)),
            }
        }
        if !is_one_of(schema, text) || !is_in_range(schema, text) {
            return self.wrong(place, &self.words(schema), &quote(text));
        }
        match text.as_bytes().first() {
            Some(b'{') => self.object(place, schema, text, depth),
            Some(b'[') => self.list(place, schema, text, depth),
            _ => {}
        }
        if self.account.len() == before {
            self.ask_judge(place, schema, text);
        }
    }

    fn object(&mut self, place: &str, schema: &Map<String, Value>, text: &str, depth: usize) {
        let Ok(Members(members)) = serde_json::from_str(text) else { return };
        let below = |name: &str| match place {
            "" => name.to_owned(),
            place => format!("{place}.{name}"),
        };
        let properties = schema.get("properties").and_then(Value::as_object);
        let property = |name: &str| properties.and_then(|properties| properties.get(name));
        let names: HashSet<&str> = members.iter().map(|(name, _)| &**name).collect();
        for name in list(schema, "required").iter().filter_map(Value::as_str) {
            if self.is_full() {
                return;
            }
            if names.contains(name) {
                continue;
            }
            let (expected, description) = match property(name) {
                Some(schema) => (self.expectation(schema), schema.get("description").and_then(Value::as_str)),
                None => ("a value".into(), None),
            };
            let place = below(name);
            self.tell(&place, &expectation::absent(&place, cut(&expected), description));
        }
        let patterns = schema.get("patternProperties").and_then(Value::as_object);
        let more = schema.get("additionalProperties").filter(|_| patterns.is_none());
        for (name, value) in &members {
            if self.is_full() {
                return;
            }
            match (property(name), more) {
                (Some(schema), _) => self.value(&below(name), schema, value.get(), depth + 1),
                // What the tool does not have at all is told by name before.
                (None, Some(Value::Bool(false))) if place.is_empty() => {}
                (None, Some(Value::Bool(false))) => {
                    self.tell(
                        &below(name),
                        &format!("`{place}`: {}", expectation::unknown_property(name, properties)),
                    );
                }
                (None, Some(schema)) => self.value(&below(name), schema, value.get(), depth + 1),
                (None, None) => {}
            }
            let Some(patterns) = patterns.filter(|_| property(name).is_none()) else { continue };
            let asked = |_: &Map<String, Value>| {
                let asked = schema.iter().filter(|(keyword, _)| BY_PATTERN.contains(&keyword.as_str()));
                asked.map(|(keyword, value)| (keyword.clone(), value.clone())).collect()
            };
            let member = format!("{{{}:{value}}}", Value::from(&**name));
            if !self.fits(patterns, &member, asked) {
                self.wrong(
                    &below(name),
                    "what `patternProperties` of the schema allows",
                    &quote(value.get()),
                );
            }
        }
    }

    fn list(&mut self, place: &str, schema: &Map<String, Value>, text: &str, depth: usize) {
        let Ok(values) = serde_json::from_str::<Vec<&RawValue>>(text) else { return };
        // Before draft 2020-12 a list under `items` was what `prefixItems` is now.
        let prefix = match list(schema, "prefixItems") {
            [] => list(schema, "items"),
            prefix => prefix,
        };
        let items = schema.get("items").filter(|items| !items.is_array());
        for (index, value) in values.iter().enumerate() {
            if self.is_full() {
                return;
            }
            let Some(schema) = prefix.get(index).or(items) else { return };
            self.value(&format!("{place}[{index}]"), schema, value.get(), depth + 1);
        }
    }

    /// Asks about all that is not looked at here: patterns, lengths, what else there may be.
    fn ask_judge(&mut self, place: &str, schema: &Map<String, Value>, text: &str) {
        // What these look at is what other words of the schema leave over.
        let needs_all = ["unevaluatedProperties", "unevaluatedItems", "additionalItems"];
        let needs_all = needs_all.iter().any(|keyword| schema.contains_key(*keyword));
        let is_asked = |keyword: &str| match keyword {
            "items" | "additionalProperties" => needs_all,
            keyword => needs_all || !LOOKED_AT.contains(&keyword),
        };
        if !schema.keys().any(|keyword| is_asked(keyword)) {
            return;
        }
        let asked = |schema: &Map<String, Value>| {
            let asked = schema.iter().filter(|(keyword, _)| is_asked(keyword));
            asked.map(|(keyword, value)| (keyword.clone(), value.clone())).collect()
        };
        if self.fits(schema, text, asked) {
            return;
        }
        let expected = self.constraints_of(schema);
        let came = match serde_json::from_str::<Vec<&RawValue>>(text) {
            Ok(values) => format!("a list of {}", values.len()),
            Err(_) => quote(text),
        };
        self.wrong(place, &expected, &came);
    }

    /// What is asked about a schema fits, as far as anybody knows.
    fn fits(
        &mut self,
        schema: &Map<String, Value>,
        text: &str,
        asked: impl Fn(&Map<String, Value>) -> Map<String, Value>,
    ) -> bool {
        let Some(judge) = self.judge else { return true };
        let key = std::ptr::from_ref(schema);
        if self.verdicts.len() == MOST_VERDICTS && !self.verdicts.contains_key(&key) {
            return true;
        }
        let verdict = self.verdicts.entry(key).or_insert_with(|| judge.verdict(asked(schema)));
        verdict.as_ref().is_none_or(|fits| fits(text))
    }

    /// Of several choices the one that the value can be meant for: `Some(None)` if there is none, `None` if there are more.
    fn only_choice(&self, schema: &'s Map<String, Value>, text: &str) -> Option<Option<&'s Value>> {
        let choices = CHOICES.into_iter().find_map(|keyword| schema.get(keyword)?.as_array())?;
        let mut fitting = choices.iter().filter(|choice| self.can_be_meant(choice, text));
        match (fitting.next(), fitting.next()) {
            (one, None) => Some(one),
            _ => None,
        }
    }

    /// The type is right, and what the schema wants to be one certain word is that word.
    fn can_be_meant(&self, choice: &Value, text: &str) -> bool {
        let Some(choice) = self.resolved(choice).as_object() else { return *choice != Value::Bool(false) };
        if !has_type(choice, text) || !is_one_of(choice, text) {
            return false;
        }
        let Some(properties) = choice.get("properties").and_then(Value::as_object) else { return true };
        let Ok(Members(members)) = serde_json::from_str(text) else { return true };
        let is_right = |name: &str, value: &RawValue| match properties
            .get(name)
            .map(|schema| self.resolved(schema))
        {
            Some(Value::Object(schema)) => !schema.contains_key("const") || is_one_of(schema, value.get()),
            _ => true,
        };
        members.iter().all(|(name, value)| is_right(name, value))
    }

    fn target(&self, schema: &Map<String, Value>) -> Option<&'s Value> {
        self.root.pointer(schema.get("$ref")?.as_str()?.strip_prefix('#')?)
    }

    /// Where a reference leads to, if it is one.
    fn resolved<'a>(&self, schema: &'a Value) -> &'a Value
    where
        's: 'a,
    {
        let mut schema = schema;
        for _ in 0..DEEPEST {
            match schema.as_object().and_then(|object| self.target(object)) {
                Some(target) => schema = target,
                None => break,
            }
        }
        schema
    }

    /// Up to draft-07 nothing that stands beside a reference counts.
    fn reads_references_alone(&self) -> bool {
        let draft = self.root.get("$schema").and_then(Value::as_str);
        draft.is_some_and(|draft| draft.contains("draft-0"))
    }
}

fn list<'a>(schema: &'a Map<String, Value>, keyword: &str) -> &'a [Value] {
    schema.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn cut(words: &str) -> &str {
    words.char_indices().nth(LONGEST_EXPECTATION).map_or(words, |(end, _)| &words[..end])
}
