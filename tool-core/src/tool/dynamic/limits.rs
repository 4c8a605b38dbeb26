//! What a schema may be, checked before anything recursive sees it: it may come from anywhere.
//!
//! A value is checked in bounded time and depth by a schema that passes here: no more than so many
//! schemas judge one value, and none of them through more than so many others.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::error::{Flaw, Kind, cut};

/// How large a schema may be as text, in bytes, about.
const LARGEST: usize = 1 << 20;

/// How deep a schema may be, in levels of JSON: serde_json reads no deeper.
const DEEPEST: usize = 127;

/// How many schemas may judge one value.
const MOST_AT_ONE_PLACE: usize = 1000;

/// Through how many others a schema may judge one value.
const LONGEST_CHAIN: usize = 12;

/// How many regular expressions a schema may have.
const MOST_PATTERNS: usize = 256;

/// Keywords with a schema for the value itself, and those with one for what is in the value.
const SAME_VALUE: [&str; 4] = ["not", "if", "then", "else"];
const SAME_VALUE_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const SAME_VALUE_MAPS: [&str; 2] = ["dependentSchemas", "dependencies"];
const INSIDE: [&str; 8] = [
    "items",
    "additionalItems",
    "contains",
    "additionalProperties",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
];
const INSIDE_LISTS: [&str; 2] = ["prefixItems", "items"];
const INSIDE_MAPS: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

/// A schema that is too large or too deep. It does not recurse, and neither does it drop what is too deep recursively.
pub(super) fn check_size(schema: &Value) -> Result<(), Flaw> {
    let mut open = vec![(schema, 1)];
    let mut size = 0_usize;
    while let Some((value, depth)) = open.pop() {
        if depth > DEEPEST {
            let reason = format!("it is nested deeper than {DEEPEST} levels");
            return Err(Flaw::new(Kind::TooLarge, reason));
        }
        size += 1;
        match value {
            Value::String(text) => size += text.len(),
            Value::Array(values) => open.extend(values.iter().map(|value| (value, depth + 1))),
            Value::Object(members) => {
                size += members.keys().map(|name| name.len() + 3).sum::<usize>();
                open.extend(members.values().map(|value| (value, depth + 1)));
            }
            _ => {}
        }
        if size > LARGEST {
            let reason = format!("it is larger than {} KiB, and every request would carry it", LARGEST >> 10);
            return Err(Flaw::new(Kind::TooLarge, reason));
        }
    }
    Ok(())
}

/// Drops a value of any depth; the usual way recurses.
pub(super) fn dismantle(value: Value) {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(values) => open.extend(values),
            Value::Object(members) => open.extend(members.into_iter().map(|(_, value)| value)),
            _ => {}
        }
    }
}

/// References that lead out of the schema or nowhere, and schemas that take too long to check a value by.
pub(super) fn check_references(root: &Value) -> Result<(), Flaw> {
    let mut walk = Walk { root, costs: HashMap::new(), patterns: 0 };
    let mut open = vec![(root, String::new())];
    let mut seen = HashSet::new();
    while let Some((schema, path)) = open.pop() {
        if !seen.insert(std::ptr::from_ref(schema)) {
            continue;
        }
        walk.check_words(schema, &path)?;
        walk.cost(schema, &path, 0)?;
        open.extend(walk.parts(schema, &path, &SAME_VALUE, &SAME_VALUE_LISTS, &SAME_VALUE_MAPS));
        open.extend(walk.parts(schema, &path, &INSIDE, &INSIDE_LISTS, &INSIDE_MAPS));
        open.extend(walk.target(schema, &path)?.map(|target| (target, path)));
    }
    Ok(())
}

/// What it takes to judge a value by a schema.
#[derive(Clone, Copy)]
struct Cost {
    /// How many schemas judge it.
    schemas: usize,
    /// Through how many others one of them does.
    chain: usize,
}

struct Walk<'s> {
    root: &'s Value,
    costs: HashMap<*const Value, Cost>,
    patterns: usize,
}

impl<'s> Walk<'s> {
    fn check_words(&mut self, schema: &'s Value, path: &str) -> Result<(), Flaw> {
        let unsupported =
            ["$dynamicRef", "$recursiveRef"].into_iter().find(|word| schema.get(word).is_some());
        if let Some(word) = unsupported {
            let reason = format!("`{word}`{} is not supported, write `$ref`", at(path));
            return Err(Flaw::new(Kind::Reference, reason));
        }
        if !path.is_empty() && schema.get("$id").is_some_and(Value::is_string) {
            let reason = format!("`$id`{} is not supported below the root of a schema", at(path));
            return Err(Flaw::new(Kind::Reference, reason));
        }
        let patterns = schema.get("patternProperties").and_then(Value::as_object).map_or(0, |map| map.len());
        self.patterns += patterns + usize::from(schema.get("pattern").is_some());
        if self.patterns > MOST_PATTERNS {
            let reason = format!("it has more than {MOST_PATTERNS} regular expressions");
            return Err(Flaw::new(Kind::TooLarge, reason));
        }
        Ok(())
    }

    /// What it takes to judge a value by a schema. It recurses no deeper than the longest chain may be.
    fn cost(&mut self, schema: &'s Value, path: &str, depth: usize) -> Result<Cost, Flaw> {
        let key = std::ptr::from_ref(schema);
        if let Some(cost) = self.costs.get(&key) {
            return Ok(*cost);
        }
        let mut cost = Cost { schemas: 1, chain: 0 };
        let parts = self.parts(schema, path, &SAME_VALUE, &SAME_VALUE_LISTS, &SAME_VALUE_MAPS);
        let target = self.target(schema, path)?.map(|target| (target, path.to_owned()));
        for (part, path) in parts.into_iter().chain(target) {
            // Where references lead in a circle, no part ever comes to an end.
            let Cost { schemas, chain } = match depth {
                LONGEST_CHAIN.. => Cost { schemas: 0, chain: LONGEST_CHAIN },
                _ => self.cost(part, &path, depth + 1)?,
            };
            cost = Cost { schemas: cost.schemas + schemas, chain: cost.chain.max(chain + 1) };
            if cost.chain > LONGEST_CHAIN {
                let reason = format!(
                    "more than {LONGEST_CHAIN} schemas lead one to another{} without going into a value, or in a circle",
                    at(&path)
                );
                return Err(Flaw::new(Kind::TooLarge, reason));
            }
            if cost.schemas > MOST_AT_ONE_PLACE {
                let reason = format!("more than {MOST_AT_ONE_PLACE} schemas judge one value{}", at(&path));
                return Err(Flaw::new(Kind::TooLarge, reason));
            }
        }
        self.costs.insert(key, cost);
        Ok(cost)
    }

    /// The schemas below these keywords, with their paths.
    fn parts(
        &self,
        schema: &'s Value,
        path: &str,
        single: &[&str],
        lists: &[&str],
        maps: &[&str],
    ) -> Vec<(&'s Value, String)> {
        let below = |keyword: &str| match path {
            "" => keyword.to_owned(),
            path => format!("{path}.{keyword}"),
        };
        let mut parts = Vec::new();
        for keyword in single {
            let part = schema.get(keyword).filter(|part| part.is_object());
            parts.extend(part.map(|part| (part, below(keyword))));
        }
        for keyword in lists {
            let list = schema.get(keyword).and_then(Value::as_array).into_iter().flatten();
            parts
                .extend(list.enumerate().map(|(index, part)| (part, format!("{}[{index}]", below(keyword)))));
        }
        for keyword in maps {
            let map = schema.get(keyword).and_then(Value::as_object).into_iter().flatten();
            parts.extend(map.map(|(name, part)| (part, below(&format!("{keyword}.{name}")))));
        }
        parts
    }

    fn target(&self, schema: &'s Value, path: &str) -> Result<Option<&'s Value>, Flaw> {
        // What is no text there is told by the check against the schema of schemas.
        let Some(reference) = schema.get("$ref").and_then(Value::as_str) else { return Ok(None) };
        let Some(pointer) =
            reference.strip_prefix('#').filter(|rest| rest.is_empty() || rest.starts_with('/'))
        else {
            let reason = format!(
                "`$ref`{} leads to `{}`; only what is in the schema itself can be referred to, such as `#/$defs/name`",
                at(path),
                cut(reference)
            );
            return Err(Flaw::new(Kind::Reference, reason));
        };
        match self.root.pointer(pointer) {
            Some(target) => Ok(Some(target)),
            None => {
                let reason = format!("`$ref`{} leads to `{}`, which is not there", at(path), cut(reference));
                Err(Flaw::new(Kind::Reference, reason))
            }
        }
    }
}

fn at(path: &str) -> String {
    match path {
        "" => " at the root".into(),
        path => format!(" at `{}`", cut(path)),
    }
}
