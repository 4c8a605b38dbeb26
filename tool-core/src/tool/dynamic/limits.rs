//! The limits of schemas, checked before any recursive code sees them, because they can be untrusted.
//!
//! A schema within these limits checks a value in bounded time and depth: the number of schemas that apply to one value
//! is bounded, and so is the length of the chains in which they refer to one another.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::error::{Flaw, cut};
use crate::content::MAX_SCHEMA_DEPTH;

/// The approximate maximum size of a schema as text, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// The maximum number of schemas that apply to one value.
const MAX_SCHEMAS_PER_VALUE: usize = 1000;

/// The maximum length of a chain of schemas that apply to the same value.
const MAX_CHAIN: usize = 12;

/// The maximum number of regular expressions in a schema.
const MAX_PATTERNS: usize = 256;

// Keywords whose schemas apply to the value itself, and those whose schemas apply to parts of the value.
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

/// Refuses a schema that is too large or too deep. Does not recurse.
pub(super) fn check_size(schema: &Value) -> Result<(), Flaw> {
    let mut open = vec![(schema, 1)];
    let mut size = 0_usize;
    while let Some((value, depth)) = open.pop() {
        if depth > MAX_SCHEMA_DEPTH {
            return Err(Flaw::too_large(format!("it is nested deeper than {MAX_SCHEMA_DEPTH} levels")));
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
        if size > MAX_BYTES {
            return Err(Flaw::too_large(format!(
                "it is larger than {} KiB, and every request would include it",
                MAX_BYTES >> 10
            )));
        }
    }
    Ok(())
}

/// Drops a value of any depth without recursion.
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

/// Refuses invalid references, and schemas that would take too long to check a value.
pub(super) fn check_references(root: &Value) -> Result<(), Flaw> {
    let mut walk = Walk { root, costs: HashMap::new(), patterns: 0 };
    let mut open = vec![(root, String::new())];
    let mut seen = HashSet::new();
    while let Some((schema, path)) = open.pop() {
        if !seen.insert(std::ptr::from_ref(schema)) {
            continue;
        }
        walk.check_keywords(schema, &path)?;
        walk.cost(schema, &path, 0)?;
        open.extend(walk.parts(schema, &path, &SAME_VALUE, &SAME_VALUE_LISTS, &SAME_VALUE_MAPS));
        open.extend(walk.parts(schema, &path, &INSIDE, &INSIDE_LISTS, &INSIDE_MAPS));
        open.extend(walk.target(schema, &path)?.map(|target| (target, path)));
    }
    Ok(())
}

/// The cost of checking a value against a schema.
#[derive(Clone, Copy)]
struct Cost {
    /// The number of schemas that apply to the value.
    schemas: usize,
    /// The length of the longest chain of schemas that leads to one of them.
    chain: usize,
}

struct Walk<'s> {
    root: &'s Value,
    costs: HashMap<*const Value, Cost>,
    patterns: usize,
}

impl<'s> Walk<'s> {
    fn check_keywords(&mut self, schema: &'s Value, path: &str) -> Result<(), Flaw> {
        let unsupported =
            ["$dynamicRef", "$recursiveRef"].into_iter().find(|keyword| schema.get(keyword).is_some());
        if let Some(keyword) = unsupported {
            let reason = format!("`{keyword}`{} is not supported; use `$ref`", at(path));
            return Err(Flaw::invalid_reference(reason));
        }
        if !path.is_empty() && schema.get("$id").is_some_and(Value::is_string) {
            let reason = format!("`$id`{} is not supported; it is allowed only at the root", at(path));
            return Err(Flaw::invalid_reference(reason));
        }
        let patterns = schema.get("patternProperties").and_then(Value::as_object).map_or(0, |map| map.len());
        self.patterns += patterns + usize::from(schema.get("pattern").is_some());
        if self.patterns > MAX_PATTERNS {
            return Err(Flaw::too_large(format!("it has more than {MAX_PATTERNS} regular expressions")));
        }
        Ok(())
    }

    /// Returns the cost of checking a value against a schema. Recurses no deeper than `MAX_CHAIN`.
    fn cost(&mut self, schema: &'s Value, path: &str, depth: usize) -> Result<Cost, Flaw> {
        let key = std::ptr::from_ref(schema);
        if let Some(cost) = self.costs.get(&key) {
            return Ok(*cost);
        }
        let mut cost = Cost { schemas: 1, chain: 0 };
        let parts = self.parts(schema, path, &SAME_VALUE, &SAME_VALUE_LISTS, &SAME_VALUE_MAPS);
        let target = self.target(schema, path)?.map(|target| (target, path.to_owned()));
        for (part, path) in parts.into_iter().chain(target) {
            // A cycle of references never ends.
            let Cost { schemas, chain } = match depth {
                MAX_CHAIN.. => Cost { schemas: 0, chain: MAX_CHAIN },
                _ => self.cost(part, &path, depth + 1)?,
            };
            cost = Cost { schemas: cost.schemas + schemas, chain: cost.chain.max(chain + 1) };
            if cost.chain > MAX_CHAIN {
                return Err(Flaw::too_large(format!(
                    "more than {MAX_CHAIN} schemas refer to one another{} without descending into the value, or in a cycle",
                    at(&path)
                )));
            }
            if cost.schemas > MAX_SCHEMAS_PER_VALUE {
                return Err(Flaw::too_large(format!(
                    "more than {MAX_SCHEMAS_PER_VALUE} schemas apply to one value{}",
                    at(&path)
                )));
            }
        }
        self.costs.insert(key, cost);
        Ok(cost)
    }

    /// Returns the schemas below these keywords with their paths.
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
        // A `$ref` that is not a string is reported by the check against the meta-schema.
        let Some(reference) = schema.get("$ref").and_then(Value::as_str) else { return Ok(None) };
        let Some(pointer) =
            reference.strip_prefix('#').filter(|rest| rest.is_empty() || rest.starts_with('/'))
        else {
            return Err(Flaw::invalid_reference(format!(
                "`$ref`{} refers to `{}`, but must refer to a part of the same schema, such as `#/$defs/name`",
                at(path),
                cut(reference)
            )));
        };
        let missing = || format!("`$ref`{} refers to `{}`, which does not exist", at(path), cut(reference));
        let target = self.root.pointer(pointer).ok_or_else(|| Flaw::invalid_reference(missing()))?;
        Ok(Some(target))
    }
}

fn at(path: &str) -> String {
    match path {
        "" => " at the root".into(),
        path => format!(" at `{}`", cut(path)),
    }
}
