//! Inspection of an object by its schema. It reports all mistakes at once, with the explanations of `explain`.
//!
//! It runs only after the object was refused. It walks the text, so that values are quoted as they were written. Depth and
//! work are bounded, because both the text and the schema may be untrusted.

mod expectation;
mod keywords;

use std::collections::{HashMap, HashSet};

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use self::keywords::{has_type, is_64_bit, is_in_range, is_one_of};
use super::explain::quote;
use crate::arguments::{MAX_REPORT_BYTES, Members, add_mistake, explain};

/// The maximum depth of an inspected value, which is the recursion limit of serde_json.
const MAX_DEPTH: usize = 128;

/// The maximum number of inspected values.
const MAX_VALUES: usize = 200_000;

/// The maximum length of the description of what was expected, in characters.
const MAX_EXPECTATION_CHARS: usize = 1000;

/// The keywords with alternative schemas.
const CHOICES: [&str; 2] = ["anyOf", "oneOf"];

/// The keywords for members that are not listed in the schema.
const BY_PATTERN: [&str; 2] = ["patternProperties", "additionalProperties"];

/// The keywords that the inspection handles itself or that do not constrain values. The judge decides about all others.
const HANDLED_KEYWORDS: [&str; 19] = [
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

/// The maximum number of schemas that the judge decides about. Each of them must be compiled.
const MAX_VERDICTS: usize = 64;

/// A validator of values against schemas.
pub(crate) trait Judge {
    /// Returns a function that validates JSON texts against a part of the schema, or `None` if that is not possible.
    fn verdict(&self, part: Map<String, Value>) -> Option<Verdict>;
}

/// A function that returns `true` if a JSON text is valid.
pub(crate) type Verdict = Box<dyn Fn(&str) -> bool>;

/// An inspection of an object and the report of its mistakes.
pub(crate) struct Inspection<'s> {
    root: &'s Value,
    judge: Option<&'s dyn Judge>,
    report: String,
    /// The paths with mistakes that were reported already.
    reported: Vec<String>,
    /// The number of values that may still be inspected.
    remaining: usize,
    /// The verdicts of the judge, by the address of the schema.
    verdicts: HashMap<*const Map<String, Value>, Option<Verdict>>,
}

impl<'s> Inspection<'s> {
    pub(crate) fn new(root: &'s Value, judge: Option<&'s dyn Judge>) -> Self {
        Self {
            root,
            judge,
            report: String::new(),
            reported: Vec::new(),
            remaining: MAX_VALUES,
            verdicts: HashMap::new(),
        }
    }

    /// Reports a mistake that begins with its path in backticks. No other mistake is reported for that path.
    pub(crate) fn report_first(&mut self, mistake: &str) {
        let path = mistake.strip_prefix('`').and_then(|rest| rest.split_once('`')).map(|(path, _)| path);
        if self.reported.iter().any(|reported| Some(&**reported) == path) {
            return;
        }
        self.reported.extend(path.map(str::to_owned));
        add_mistake(&mut self.report, mistake);
    }

    pub(crate) fn into_report(self) -> String {
        self.report
    }

    /// Inspects the object of all arguments.
    pub(crate) fn inspect_arguments(&mut self, text: &str) {
        let length_before = self.report.len();
        self.inspect_value("", self.root, text, 0);
        if self.report.len() != length_before || self.is_full() {
            return;
        }
        // The object is too deep or too large to be inspected completely, but the invalid arguments can be named.
        let Ok(Members(members)) = serde_json::from_str(text) else { return };
        self.verdicts.clear();
        for (name, value) in members {
            let schema = self.root.get("properties").and_then(|properties| properties.get(&*name));
            let Some(schema) = schema.and_then(Value::as_object) else { continue };
            if !self.is_valid(schema, value.get(), Map::clone) {
                self.report_value(&name, &self.describe_constraints(schema), &quote(value.get()));
            }
        }
    }

    fn is_full(&self) -> bool {
        self.report.len() > MAX_REPORT_BYTES
    }

    /// Reports a mistake at a path, unless one was reported for it already.
    fn report(&mut self, path: &str, mistake: &str) {
        if !self.reported.iter().any(|reported| reported == path) {
            add_mistake(&mut self.report, mistake);
        }
    }

    /// Reports that the value at a path is not as expected.
    fn report_value(&mut self, path: &str, expected: &str, found: &str) {
        let expected = truncate(expected);
        if path.is_empty() {
            self.report(path, &format!("expected {expected}"));
        } else {
            self.report(path, &format!("`{path}`: expected {expected}, got {found}"));
        }
    }

    fn inspect_value(&mut self, path: &str, schema: &Value, text: &str, depth: usize) {
        if depth > MAX_DEPTH || self.remaining == 0 || self.is_full() {
            return;
        }
        self.remaining -= 1;
        let Value::Object(schema) = schema else {
            if *schema == Value::Bool(false) {
                self.report(path, &format!("`{path}` must be left out"));
            }
            return;
        };
        let length_before = self.report.len();
        if let Some(target) = self.target(schema) {
            self.inspect_value(path, target, text, depth + 1);
            if self.ignores_siblings_of_references() {
                return;
            }
        }
        for part in list(schema, "allOf") {
            self.inspect_value(path, part, text, depth + 1);
        }
        if !has_type(schema, text) {
            return self.report_value(path, &self.describe_object(schema), &quote(text));
        }
        if let Some(choice) = self.only_choice(schema, text) {
            match choice {
                Some(choice) => self.inspect_value(path, choice, text, depth + 1),
                None => return self.report_value(path, &self.describe_object(schema), &quote(text)),
            }
        }
        if !is_one_of(schema, text) || !is_in_range(schema, text) {
            return self.report_value(path, &self.describe_object(schema), &quote(text));
        }
        // The judge reads numbers of at most 64 bits; a type that is read from the text can have more.
        if self.judge.is_some() && !is_64_bit(schema, text) {
            return self.report_value(
                path,
                &format!("an integer from {} to {}", i64::MIN, u64::MAX),
                &quote(text),
            );
        }
        match text.as_bytes().first() {
            Some(b'{') => self.inspect_object(path, schema, text, depth),
            Some(b'[') => self.inspect_list(path, schema, text, depth),
            _ => {}
        }
        if self.report.len() == length_before {
            self.ask_judge(path, schema, text);
        }
    }

    fn inspect_object(&mut self, path: &str, schema: &Map<String, Value>, text: &str, depth: usize) {
        let Ok(Members(members)) = serde_json::from_str(text) else { return };
        let member_path = |name: &str| match path {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
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
                Some(schema) => (self.describe(schema), schema.get("description").and_then(Value::as_str)),
                None => ("a value".into(), None),
            };
            let path = member_path(name);
            self.report(&path, &explain::missing_value(&path, truncate(&expected), description));
        }
        let patterns = schema.get("patternProperties").and_then(Value::as_object);
        let more = schema.get("additionalProperties").filter(|_| patterns.is_none());
        for (name, value) in &members {
            if self.is_full() {
                return;
            }
            match (property(name), more) {
                (Some(schema), _) => self.inspect_value(&member_path(name), schema, value.get(), depth + 1),
                // Unknown arguments of the tool are reported by the caller.
                (None, Some(Value::Bool(false))) if path.is_empty() => {}
                (None, Some(Value::Bool(false))) => {
                    self.report(
                        &member_path(name),
                        &format!("`{path}`: {}", explain::unknown_property(name, properties)),
                    );
                }
                (None, Some(schema)) => {
                    self.inspect_value(&member_path(name), schema, value.get(), depth + 1)
                }
                (None, None) => {}
            }
            let Some(patterns) = patterns.filter(|_| property(name).is_none()) else { continue };
            let part = |_: &Map<String, Value>| {
                let part = schema.iter().filter(|(keyword, _)| BY_PATTERN.contains(&keyword.as_str()));
                part.map(|(keyword, value)| (keyword.clone(), value.clone())).collect()
            };
            let member = format!("{{{}:{value}}}", Value::from(&**name));
            if !self.is_valid(patterns, &member, part) {
                self.report_value(
                    &member_path(name),
                    "what `patternProperties` of the schema allows",
                    &quote(value.get()),
                );
            }
        }
    }

    fn inspect_list(&mut self, path: &str, schema: &Map<String, Value>, text: &str, depth: usize) {
        let Ok(values) = serde_json::from_str::<Vec<&RawValue>>(text) else { return };
        // Before draft 2020-12, `prefixItems` was written as a list under `items`.
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
            self.inspect_value(&format!("{path}[{index}]"), schema, value.get(), depth + 1);
        }
    }

    /// Asks the judge about all keywords that are not handled here, such as patterns and lengths.
    fn ask_judge(&mut self, path: &str, schema: &Map<String, Value>, text: &str) {
        // These keywords depend on other keywords of the schema.
        let needs_all = ["unevaluatedProperties", "unevaluatedItems", "additionalItems"];
        let needs_all = needs_all.iter().any(|keyword| schema.contains_key(*keyword));
        let is_needed = |keyword: &str| match keyword {
            "items" | "additionalProperties" => needs_all,
            keyword => needs_all || !HANDLED_KEYWORDS.contains(&keyword),
        };
        if !schema.keys().any(|keyword| is_needed(keyword)) {
            return;
        }
        let part = |schema: &Map<String, Value>| {
            let part = schema.iter().filter(|(keyword, _)| is_needed(keyword));
            part.map(|(keyword, value)| (keyword.clone(), value.clone())).collect()
        };
        if self.is_valid(schema, text, part) {
            return;
        }
        let expected = self.describe_constraints(schema);
        let found = match serde_json::from_str::<Vec<&RawValue>>(text) {
            Ok(values) => format!("a list of {}", values.len()),
            Err(_) => quote(text),
        };
        self.report_value(path, &expected, &found);
    }

    /// Returns the verdict of the judge about a part of a schema, or `true` if there is none.
    fn is_valid(
        &mut self,
        schema: &Map<String, Value>,
        text: &str,
        part: impl Fn(&Map<String, Value>) -> Map<String, Value>,
    ) -> bool {
        let Some(judge) = self.judge else { return true };
        let key = std::ptr::from_ref(schema);
        if self.verdicts.len() == MAX_VERDICTS && !self.verdicts.contains_key(&key) {
            return true;
        }
        let verdict = self.verdicts.entry(key).or_insert_with(|| judge.verdict(part(schema)));
        verdict.as_ref().is_none_or(|is_valid| is_valid(text))
    }

    /// Returns the only alternative that can apply to the value: `Some(None)` if none applies, `None` if several do or if there
    /// are no alternatives.
    fn only_choice(&self, schema: &'s Map<String, Value>, text: &str) -> Option<Option<&'s Value>> {
        let choices = CHOICES.into_iter().find_map(|keyword| schema.get(keyword)?.as_array())?;
        let mut candidates = choices.iter().filter(|choice| self.can_apply(choice, text));
        match (candidates.next(), candidates.next()) {
            (one, None) => Some(one),
            _ => None,
        }
    }

    /// Returns `true` if the type and the constants of the alternative match the value.
    fn can_apply(&self, choice: &Value, text: &str) -> bool {
        let Some(choice) = self.resolved(choice).as_object() else { return *choice != Value::Bool(false) };
        if !has_type(choice, text) || !is_one_of(choice, text) {
            return false;
        }
        let Some(properties) = choice.get("properties").and_then(Value::as_object) else { return true };
        let Ok(Members(members)) = serde_json::from_str(text) else { return true };
        let matches = |name: &str, value: &RawValue| match properties
            .get(name)
            .map(|schema| self.resolved(schema))
        {
            Some(Value::Object(schema)) => !schema.contains_key("const") || is_one_of(schema, value.get()),
            _ => true,
        };
        members.iter().all(|(name, value)| matches(name, value))
    }

    /// Resolves the reference of a schema, if it has one.
    fn target(&self, schema: &Map<String, Value>) -> Option<&'s Value> {
        self.root.pointer(schema.get("$ref")?.as_str()?.strip_prefix('#')?)
    }

    /// Follows references to the schema at their end.
    fn resolved<'a>(&self, schema: &'a Value) -> &'a Value
    where
        's: 'a,
    {
        let mut schema = schema;
        for _ in 0..MAX_DEPTH {
            match schema.as_object().and_then(|object| self.target(object)) {
                Some(target) => schema = target,
                None => break,
            }
        }
        schema
    }

    /// Returns `true` for drafts up to draft-07, which ignore the keywords beside a reference.
    fn ignores_siblings_of_references(&self) -> bool {
        let draft = self.root.get("$schema").and_then(Value::as_str);
        draft.is_some_and(|draft| draft.contains("draft-0"))
    }
}

fn list<'a>(schema: &'a Map<String, Value>, keyword: &str) -> &'a [Value] {
    schema.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn truncate(text: &str) -> &str {
    text.char_indices().nth(MAX_EXPECTATION_CHARS).map_or(text, |(end, _)| &text[..end])
}
